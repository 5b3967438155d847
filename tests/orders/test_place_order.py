"""placeOrder: what an order is, and what a body must be to be read at all."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.orders import event_row, order_row, order_v1, order_v2
from tests.support.stores import BOTH_VERSIONS, assert_error

MAX_BODY = 65_536
MAX_INT64 = 2**63 - 1
MAX_QUANTITY = 2**31 - 1
SOUND = b'{"petId":7}'
NOW = "2026-12-01T12:00:00.000Z"


@pytest.fixture
def patient(patient, version):
    """A client without limits to speak of, of the store that this file's tables of cases share."""
    return patient.speaking(version)


def post(client, body, content_type="application/json", **headers):
    return client.post(client.orders, data=body, content_type=content_type, headers=headers)


def assert_rejected(client, response, status, code):
    """Check that a response is this error, and that its request changed nothing."""
    assert_error(response, status, code)
    request_id = response.headers["X-Request-Id"]
    own = f"SELECT * FROM order_events WHERE request_id = '{request_id}'"
    assert client.store.rows(own) == []


def assert_invalid(client, response):
    assert_rejected(client, response, 422, "validation_failed")


# What an order is.


@BOTH_VERSIONS
def test_a_placed_order_is_pending_and_has_a_location(client, version):
    response = client.place(7, quantity=2, shipDate="2026-12-05T10:00:00+02:00")
    order = {1: order_v1, 2: order_v2}[version]
    assert response.status_code == 201
    expected = order(quantity=2, shipDate="2026-12-05T08:00:00.000Z")
    assert list(response.get_json().items()) == list(expected.items())
    assert response.content_type == "application/json"
    assert response.headers["Location"] == f"{client.orders}/1"
    assert client.order(1).get_json() == response.get_json()


def test_by_default_an_order_is_one_unit_without_a_ship_date(client):
    assert client.place(7).get_json() == order_v1()


@BOTH_VERSIONS
def test_a_placed_order_has_one_event_that_names_its_author(client, store):
    response = client.place(7, quantity=2)
    (event,) = store.events()
    assert event == event_row(
        order_row(quantity=2, placed_at=NOW, updated_at=NOW),
        type="order.placed",
        actor=f"key:{client.key_id}",
        request_id=response.headers["X-Request-Id"],
    )


def test_ids_rise_and_are_never_reused(client):
    assert [client.place().get_json()["id"] for _ in range(3)] == [1, 2, 3]
    client.cancel(3)
    assert client.place().get_json()["id"] == 4


@BOTH_VERSIONS
def test_the_location_follows_the_public_address(make_store, version):
    client = make_store(base_url="https://shop.example/animals/v1").client().speaking(version)
    assert client.place().headers["Location"] == f"/animals/v{version}/store/orders/1"


def test_the_pet_is_not_looked_up(client):
    assert_error(client.get("/v1/pets/7"), 404, "pet_not_found")
    assert client.place(7).status_code == 201


# References, which only version 2 has.


@given(st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1, max_size=64))
@example("🐢" * 64)
@example('R-1, "Höhle" 🐢')
@example(" ")
def test_any_text_of_64_characters_is_a_reference(client_v2, text):
    placed = client_v2.place(reference=text).get_json()
    assert list(placed)[-1] == "reference"
    assert placed["reference"] == text
    assert client_v2.order(placed["id"]).get_json() == placed


def test_a_reference_may_be_left_out_and_come_twice(client_v2):
    assert "reference" not in client_v2.place().get_json()
    assert [client_v2.place(reference="R").status_code for _ in range(2)] == [201, 201]


@pytest.mark.parametrize("text", ["x", "🐢" * 500, "First\nsecond\r\nthird\r", ' "\\ Höhle'])
def test_a_note_is_shown_as_it_was_sent(client_v2, text):
    placed = client_v2.place(note=text)
    assert (placed.status_code, placed.get_json()["note"]) == (201, text)
    order, history, feed = (
        client_v2.get(f"/v2/store/{path}").get_json()
        for path in ("orders/1", "orders/1/events", "events")
    )
    assert [order["note"], history["events"][0]["order"]] == [text, order]
    assert feed["events"][0]["order"] == order


NO_TEXT = ("", "a\0b", "\x7f", "a\x85b", "\v", "\ud800", 7, True, None, ["a"])
NO_TEXTS = {"reference": (*NO_TEXT, "R" * 65, "a\nb"), "note": (*NO_TEXT, "x" * 501, "a\tb")}


@pytest.mark.parametrize("field", NO_TEXTS)
def test_an_invalid_text_is_rejected(client_v2, field, subtests):
    for text in NO_TEXTS[field]:
        with subtests.test(ascii(text)[:20]):
            response = client_v2.place(**{field: text})
            assert_invalid(client_v2, response)
            assert response.get_json()["message"].startswith(f"{field}: ")


def test_version_1_shows_neither_a_reference_nor_a_note(client_v2):
    client_v2.place(reference="R-1", note="A gift")
    shown = client_v2.speaking(1).order(1).get_json()
    assert list(shown) == ["id", "petId", "quantity", "complete"]


INSTANTS = st.datetimes(timezones=st.just(UTC))


@given(
    pet_id=st.integers(1, MAX_INT64),
    quantity=st.integers(1, MAX_QUANTITY),
    ship_date=st.none() | INSTANTS,
)
@example(pet_id=1, quantity=1, ship_date=datetime.min.replace(tzinfo=UTC))
@example(pet_id=MAX_INT64, quantity=MAX_QUANTITY, ship_date=datetime.max.replace(tzinfo=UTC))
def test_any_valid_order_is_placed_as_it_was_sent(patient, pet_id, quantity, ship_date):
    sent = {"petId": pet_id, "quantity": quantity}
    if ship_date is not None:
        sent["shipDate"] = ship_date.isoformat(timespec="milliseconds")
    placed = patient.post(patient.orders, json=sent)
    assert placed.status_code == 201
    expected = {"id": placed.get_json()["id"], **sent, "complete": False}
    if ship_date is not None:
        expected["shipDate"] = sent["shipDate"].replace("+00:00", "Z")
    assert placed.get_json() == expected
    assert patient.get(placed.headers["Location"]).get_json() == expected


# Invalid orders.

NOT_WHOLE_NUMBERS = (
    *('"7"', '"seven"', '""', "7.0", "7e0", "7.5", "1e400"),
    *("true", "false", "null", "[7]", "{}", "0", "-0", "-7"),
    *("9" * 1_000, "-" + "9" * 1_000),
)
NUMBERS = {
    "petId": (*NOT_WHOLE_NUMBERS, str(MAX_INT64 + 1)),
    "quantity": (*NOT_WHOLE_NUMBERS, str(MAX_QUANTITY + 1)),
}


@BOTH_VERSIONS
@pytest.mark.parametrize("field", NUMBERS)
def test_a_value_that_only_looks_like_a_number_or_is_out_of_range_is_rejected(
    patient, field, subtests
):
    others = '"quantity":1' if field == "petId" else '"petId":7'
    for literal in NUMBERS[field]:
        with subtests.test(literal[:20]):
            response = post(patient, f'{{"{field}":{literal},{others}}}')
            assert_invalid(patient, response)
            assert response.get_json()["message"].startswith(f"{field}: ")


NOT_INSTANTS = (
    *("null", "1796112000", "true", '""', '"tomorrow"', '"2026-12-01"', '"2026-12-01T08:00:00"'),
    *('"2026-12-01 08:00:00Z"', '"2026-12-01T08:00:60Z"', '"2026-12-01T08:00:00Z\\n"'),
    *('"0001-01-01T00:00:00+00:01"', '"9999-12-31T23:59:59-00:01"'),
    *('["2026-12-01T08:00:00Z"]', '{"date":"2026-12-01T08:00:00Z"}'),
)


@BOTH_VERSIONS
def test_a_ship_date_that_is_not_an_instant_is_rejected(patient, subtests):
    for literal in NOT_INSTANTS:
        with subtests.test(literal):
            response = post(patient, f'{{"petId":7,"shipDate":{literal}}}')
            assert_invalid(patient, response)
            assert response.get_json()["message"].startswith("shipDate: ")


NOT_FIELDS = ("id", "complete", "status", "reference", "placedAt", "petid", "pet_id", "Hündin")


@BOTH_VERSIONS
def test_a_field_that_clients_may_not_set_is_rejected_by_its_name(patient):
    for name in (*NOT_FIELDS, "_schema"):
        response = patient.post(patient.orders, json={"petId": 7, name: 1})
        assert_invalid(patient, response)
        assert name in response.get_json()["message"]


@BOTH_VERSIONS
def test_an_error_names_every_field_that_is_wrong(patient):
    response = patient.post(
        patient.orders, json={"quantity": 0, "shipDate": "soon", "colour": "red"}
    )
    assert_invalid(patient, response)
    named = {fault.partition(":")[0] for fault in response.get_json()["message"].split("; ")}
    assert named == {"petId", "quantity", "shipDate", "colour"}


WORDS = {
    '{"petId": 7, "zz": 1, "b": 1, "a": 1}': "zz: {0}; b: {0}; a: {0}.",
    '{"petId": 7, "": 1, ": ": 1}': '"": {0}; ": ": {0}.',
    '{"petId": 7, "shipDate": "2026-12-01T08:00:60Z"}': "shipDate: must have seconds from 00 to "
    "59: a leap second can't be stored.",
    '{"petId": null}': "petId: must not be null.",
    '{"petId": "\n"}': "The body can't be read: it is not JSON: Invalid control character at line "
    "1, column 12.",
    '\ufeff{"petId": 7}': "The body can't be read: it begins with a byte order mark.",
}


def test_a_message_names_what_is_wrong_in_the_order_of_the_request(patient):
    for body, words in WORDS.items():
        message = post(patient, body.encode()).get_json()["message"]
        assert message == words.format("is not a field of this request")


@BOTH_VERSIONS
def test_a_body_that_is_not_an_object_is_rejected(patient):
    for body in ("[]", '[{"petId":7}]', '"petId"', "7", "true", "null"):
        assert_invalid(patient, post(patient, body))


# Not JSON, or JSON that readers may understand differently.


def nested(levels, opening_bracket="[", closing_bracket="]"):
    """Return an object whose innermost container is on this level; the object is the first."""
    inside = levels - 1
    return '{"petId":' + opening_bracket * inside + closing_bracket * inside + "}"


NOT_JSON = (
    # Truncated, or with trailing text.
    *(b"", b" \n", b'{"petId":7', SOUND + b"x", SOUND + SOUND, b'{"petId":7,}', SOUND + b"\x00"),
    *(b"{'petId':7}", b"{petId:7}", b'{"petId":7} // seven', b"petId=7", b'{"petId":"\n"}'),
    *(b'{"petId":07}', b'{"petId":+7}', b'{"petId":.5}', b'{"petId":0x7}', b'{"petId":\x0b7}'),
    *(b'{"petId":NaN}', b'{"petId":Infinity}', b'{"petId":-Infinity}'),
    '{"petId":\u0667}'.encode(),
    # Not UTF-8, or with a byte order mark.
    *(b"\xef\xbb\xbf" + SOUND, SOUND.decode().encode("utf-16"), b"{\x00}\x00"),
    *(b'{"petId":"\xff"}', b'{"petId":"\xc0\xaf"}', b'{"petId":"\xed\xa0\x80"}'),
    '{"petId":"Hündin"}'.encode("latin-1"),
    # The same name twice.
    *(b'{"petId":7,"petId":7}', b'{"petId":7,"\\u0070etId":8}', b'[{"petId":7,"petId":8}]'),
    b'{"petId":7,"pet":{"id":1,"id":1}}',
    # Numbers of more than 1,000 characters.
    *(b'{"petId":' + b"9" * 1_001 + b"}", b'{"petId":-' + b"9" * 1_001 + b"}"),
    *(b'{"petId":1.' + b"9" * 1_000 + b"}", b'{"petId":1e' + b"0" * 1_000 + b"}"),
    b'{"petId":' + b"9" * 5_000 + b"}",
    b'{"a":"\\"[1,","petId":' + b"9" * 1_001 + b"}",
    # More than 33 levels.
    *(nested(34), nested(33, '{"a":', "}").replace(":}", ":{}}"), '{"a":[' * 17 + "]}" * 17),
    *("[" * 60_000, '{"a":' * 12_000),
)


def test_a_body_that_is_not_strict_json_is_rejected(patient, subtests):
    for body in NOT_JSON:
        with subtests.test(body[:30]):
            assert_rejected(patient, post(patient, body), 400, "malformed_request")


SOUND_JSON = (
    *(nested(33), nested(32, '{"a":', "}").replace(":}", ":{}}")),
    '{"petId":[' + "[]," * 9_000 + "[]]}",
    b'{"petId":' + b"9" * 1_000 + b"}",
    b'{"petId":-1.5e+' + b"0" * 998 + b"}",
    b'{"\\"petId":"' + b"9" * 5_000 + b'\\"\\\\"}',
    *(b'{"petId":"\\ud800"}', b'{"petId":"\\u0000"}', b'{"petId":7,"petid":7,"PETID":7}'),
)


def test_valid_json_is_parsed_and_then_rejected_for_its_contents(patient, subtests):
    for body in SOUND_JSON:
        with subtests.test(body[:30]):
            assert_invalid(patient, post(patient, body))


@given(at=st.integers(0, 60), removed=st.integers(0, 3), put=st.binary(max_size=3))
def test_a_typo_in_a_body_leads_to_an_order_or_an_error_and_nothing_else(patient, at, removed, put):
    sound = b'{"petId": 7, "quantity": 2, "shipDate": "2026-12-01T08:00:00Z"}'
    response = post(patient, sound[:at] + put + sound[at + removed :])
    if response.status_code == 201:
        assert response.get_json()["complete"] is False
    elif response.status_code == 400:
        assert_rejected(patient, response, 400, "malformed_request")
    else:
        assert_invalid(patient, response)


# Size and type.


def padded(size, body=SOUND):
    return body + b" " * (size - len(body))


@BOTH_VERSIONS
def test_a_body_may_have_64_kib_and_not_a_byte_more(patient):
    assert post(patient, padded(MAX_BODY)).status_code == 201
    assert_rejected(patient, post(patient, padded(MAX_BODY + 1)), 413, "payload_too_large")


@pytest.mark.slow
def test_the_size_of_a_body_in_chunks_is_judged_by_its_bytes(service):
    key = service.issue()
    for size, status in ((MAX_BODY, 201), (MAX_BODY + 1, 413)):
        whole = padded(size)
        response = service.request(
            "POST",
            "/v1/store/orders",
            key,
            body=iter([whole[:1000], whole[1000:]]),
            headers={"Content-Type": "application/json"},
            chunked=True,
        )
        assert response.status == status


def test_json_in_utf_8_may_be_declared_in_any_way(patient, subtests):
    for media_type in ("application/json", "Application/JSON"):
        for charset in ("", "; charset=utf-8", ";charset=UTF-8", '; charset="utf-8"'):
            with subtests.test(media_type + charset):
                assert post(patient, SOUND, media_type + charset).status_code == 201


OTHER_TYPES = (
    *(None, "", "text/plain", "text/json", "application/jsonp", "application/problem+json"),
    *("application/x-www-form-urlencoded", "multipart/form-data; boundary=x"),
    *("application/json, text/plain", "application/json; charset=iso-8859-1"),
    "application/json; charset=utf-16",
)


def test_a_body_that_is_not_declared_as_plain_json_in_utf_8_is_rejected(patient, subtests):
    error = (415, "unsupported_media_type")
    for content_type in OTHER_TYPES:
        with subtests.test(content_type):
            response = post(patient, SOUND, content_type)
            assert_rejected(patient, response, *error)
            assert response.headers["Accept"] == "application/json"
            assert "Accept-Encoding" not in response.headers
    for encoding in ("gzip", "br", "identity"):
        with subtests.test(encoding):
            response = post(patient, SOUND, **{"Content-Encoding": encoding})
            assert_rejected(patient, response, *error)
            assert response.headers["Accept-Encoding"] == "identity"
            assert "Accept" not in response.headers


TOO_LARGE, OF_NO_TYPE = (413, "payload_too_large"), (415, "unsupported_media_type")


# Its size comes first, then its type, then its syntax.
JUDGED = (
    (padded(MAX_BODY + 1, b"{"), "text/plain", TOO_LARGE),
    *((body, "text/plain", OF_NO_TYPE) for body in (b"{", b"")),
    (b"", None, OF_NO_TYPE),
    (b'{"colour":NaN}', "application/json", (400, "malformed_request")),
)


@BOTH_VERSIONS
def test_a_body_is_judged_by_its_size_then_its_type_then_its_syntax(patient):
    for body, content_type, error in JUDGED:
        assert_rejected(patient, post(patient, body, content_type), *error)
