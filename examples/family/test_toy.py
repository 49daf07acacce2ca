"""All that a family must hold, run by pytest: the whole test of one's own family."""

from ferryman.testing.families import FamilyConformance
from toy import TOY


class TestToy(FamilyConformance):
    family = TOY
