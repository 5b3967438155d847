"""API keys: their format, and how they are redacted in a text."""

from __future__ import annotations

import base64
import hashlib
import math
import re
from urllib.parse import quote, unquote

from hypothesis import given
from hypothesis import strategies as st

from orders import apikeys
from tests.support.orders import ANY

BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
SHAPE = re.compile(r"sok_[0-9A-Za-z]+")

# Keys come from the system's random source, so each example has another.
some_key = st.builds(apikeys.generate)
some_secret = st.binary(min_size=24, max_size=64).map(
    lambda secret: "whsec_" + base64.b64encode(secret).decode()  # pragma: allowlist secret
)
no_underscore = st.text(st.characters(exclude_characters="_"))
like_keys = st.lists(st.sampled_from(["sok_", "s", "_", "*", "A", "7", " ", "/"])).map("".join)


# Generated.


def test_at_least_160_bits_of_a_key_are_random():
    made = [apikeys.generate().removeprefix("sok_") for _ in range(2_000)]
    assert len(set(made)) == 2_000
    for place in range(math.ceil(160 / math.log2(len(BASE62)))):
        assert {key[place] for key in made} == set(BASE62)


@given(key=some_key)
def test_a_generated_key_is_well_formed_hashed_by_sha_256_and_shown_by_its_prefix(key):
    assert SHAPE.fullmatch(key)
    assert apikeys.is_well_formed(key)
    assert apikeys.digest(key) == hashlib.sha256(key.encode()).digest()
    shown = apikeys.shown_prefix(key)
    assert key.startswith(shown)
    assert len("sok_") < len(shown) <= 12


# Recognised.


@given(key=some_key, place=st.integers(0, 200), other=st.sampled_from(BASE62))
def test_a_key_that_is_mistyped_or_cut_off_is_not_well_formed(key, place, other):
    place %= len(key)
    mistyped = key[:place] + other + key[place + 1 :]
    swapped = key[:place] + key[place + 1 : place + 2] + key[place] + key[place + 2 :]
    cut = key[:place]
    for text in (mistyped, swapped, cut):
        assert apikeys.is_well_formed(text) == (text == key)


@given(
    key=some_key, around=st.text(ANY, min_size=1) | st.sampled_from(["\n", " ", "\x00", "\u0663"])
)
def test_a_key_with_other_characters_around_it_is_not_well_formed(key, around):
    for text in (around + key, key + around, key[:-1] + around):
        assert apikeys.is_well_formed(text) == (text == key)


@given(st.text(ANY) | st.from_regex(SHAPE, fullmatch=True, alphabet=ANY))
def test_no_other_text_is_well_formed(text):
    assert not apikeys.is_well_formed(text)


# Redacted.


@given(key=some_key, before=no_underscore, behind=no_underscore)
def test_no_key_is_left_in_a_redacted_text(key, before, behind):
    redacted = apikeys.redact(before + key + behind)
    assert key.removeprefix("sok_") not in redacted
    assert redacted.startswith(before + "sok_***")


@given(key=some_key, before=like_keys, behind=like_keys)
def test_text_that_looks_like_a_key_does_not_shield_the_key_after_it(key, before, behind):
    once = apikeys.redact(before + key + behind)
    assert key.removeprefix("sok_") not in once
    assert apikeys.redact(once) == once


@given(several=st.lists(some_key, min_size=1, max_size=5), length=st.integers(5, 200))
def test_all_keys_in_a_text_are_redacted_even_if_they_are_cut_off(several, length):
    redacted = apikeys.redact(" and ".join(key[:length] for key in several))
    assert redacted == " and ".join(["sok_***"] * len(several))


@given(key=some_key, depth=st.integers(1, 4), case=st.sampled_from([str.upper, str.lower]))
def test_a_key_is_redacted_in_upper_and_lower_case_and_at_any_depth_of_percent_encoding(
    key, depth, case
):
    for text in (percent_encoded(case(key)), "sok%5F" + key.removeprefix("sok_")):
        again = text.replace("%", "%" + "25" * depth)
        assert unquote_all(apikeys.redact(f"/{again} and")).lower() == "/sok_*** and"
    assert apikeys.redact(f"/{case(key)}/x") == f"/{case('sok_')}***/x"


def percent_encoded(text):
    return "".join(f"%{ord(each):02x}" for each in text)


def unquote_all(text):
    while unquote(text) != text:
        text = unquote(text)
    return text


@given(no_underscore | st.sampled_from(["sok", "sOk_", "%73ok_", "s_o_k_", "sok_", "sok_ A"]))
def test_a_text_without_a_key_is_unchanged(text):
    assert apikeys.redact(text) == text


@given(secret=some_secret, before=no_underscore | like_keys, behind=st.sampled_from([" ", "."]))
def test_a_webhooks_secret_is_redacted_too(secret, before, behind):
    redacted = apikeys.redact(before + secret + behind)
    assert secret.removeprefix("whsec_") not in redacted
    assert redacted.endswith("***" + behind)


@given(secret=some_secret)
def test_a_secret_encoded_for_a_url_is_redacted(secret):
    assert apikeys.redact(f"/{quote(secret, safe='')} ") == "/whsec_*** "
    assert apikeys.redact(f"/{quote(quote(secret, safe=''))} ") == "/whsec_*** "
