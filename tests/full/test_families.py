"""Every family of the installed `transformers` that can be built."""

import pytest

from bench import small
from bench.families import examine

pytestmark = pytest.mark.full


@pytest.mark.parametrize("family", small.FAMILIES)
def test_all_that_a_family_offers_holds(family: str) -> None:
    examined = examine(family)
    assert not examined.refusal and not examined.broken
