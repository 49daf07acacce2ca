from django.db import transaction
from django.http import HttpRequest, JsonResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt

from .models import Order
from .tasks import confirm


@csrf_exempt
@transaction.atomic
def orders(_request: HttpRequest, customer: str) -> JsonResponse:
    order = Order.objects.create(customer=customer)
    confirm.delay_on_commit(order.pk)  # a worker that is faster than the database would not find it
    return JsonResponse({"order": order.pk}, status=201)


urlpatterns = [path("orders/<str:customer>", orders)]
