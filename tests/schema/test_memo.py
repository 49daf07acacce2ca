"""The memory of one value."""

from __future__ import annotations

from ferryman.schema.memo import cached_property, remember_last


def test_the_same_object_is_computed_once_and_an_equal_one_again() -> None:
    asked: list[list[int]] = []

    @remember_last
    def total(numbers: list[int]) -> int:
        asked.append(numbers)
        return sum(numbers)

    one, equal = [1, 2], [1, 2]
    assert [total(one), total(one), total(equal), total(one)] == [3, 3, 3, 3]
    assert len(asked) == 3


def test_a_property_is_worked_out_once_for_each_object() -> None:
    class Counted:
        asked = 0

        @cached_property
        def total(self) -> int:
            self.asked += 1
            return self.asked

    one, other = Counted(), Counted()
    assert [one.total, one.total, other.total] == [1, 1, 1]
    assert one.asked == 1
