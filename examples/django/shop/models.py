from django.db import models


class Order(models.Model):
    customer = models.EmailField()
    confirmed = models.BooleanField(default=False)
