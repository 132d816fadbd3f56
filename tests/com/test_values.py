"""Values of VARIANTs that Python cannot hold, or VARIANTs cannot."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import pytest

from msrpc.dcom.variant import VT, Variant
from openmsmq.com import ComError
from openmsmq.com.values import from_variant, to_variant
from openmsmq.model.bodies import decode_body, encode_body


@pytest.mark.parametrize(
    ("moment", "date"),
    [
        (datetime(1899, 12, 29, 6, tzinfo=UTC), -1.25), (datetime(1899, 12, 30, 6, tzinfo=UTC), 0.25),
        (datetime(1899, 12, 28, tzinfo=UTC), -2.0), (datetime(2026, 11, 30, 12, tzinfo=UTC), 46356.5),
    ],
)  # fmt: skip
def test_a_date_is_the_same_in_a_variant_and_in_a_body(moment: datetime, date: float) -> None:
    """[MS-OAUT] 2.2.25: before 1899-12-30, the time of day has the sign of the days."""
    assert to_variant(moment) == Variant(VT.DATE, date)
    assert from_variant(Variant(VT.DATE, date)) == moment == decode_body(*encode_body(moment))


def test_what_does_not_fit_is_refused() -> None:
    assert from_variant(to_variant(Decimal("-1.2345"))) == Decimal("-1.2345")
    with pytest.raises(ComError, match="more than 4 decimals"):
        to_variant(Decimal("1.23456"))
    for value in ("1e15", "nan", "inf"):
        with pytest.raises(ComError, match="64 bits"):
            to_variant(Decimal(value))
    with pytest.raises(ComError, match="not in the years 1 to 9999"):
        from_variant(Variant(VT.DATE, 1e9))
