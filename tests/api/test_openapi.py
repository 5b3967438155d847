"""The OpenAPI documents of both versions: valid, complete, and true of the code."""

from __future__ import annotations

import gzip
import json
import re
from dataclasses import fields, replace
from pathlib import Path

import pytest

from orders import domain
from orders.apikeys import SCOPES
from orders.settings import Settings
from orders.web.administration import BINARY
from orders.web.api import PROTECTION
from orders.web.bodies import FORM
from orders.web.refusals import CODES, EXAMPLES, SERVER_ANSWERS, WebRefusal, answer_to
from schemas.v2 import OrdersQuerySchema
from tests.support.clocks import SetClock
from tests.support.orders import OPTIONAL, SHOWN
from tests.support.stores import Store, assert_error

TESTS = Path(__file__).parent.parent
ORDERS, ORDER = "/store/orders", "/store/orders/{orderId}"
KEYS, KEY = "/keys", "/keys/{keyId}"
HOOKS, HOOK = "/webhooks", "/webhooks/{webhookId}"
REDELIVER = f"{HOOK}/deliveries/{{eventId}}/redeliver"
COMMON = {"401", "403", "429", "500", "503"}
BODY = {"400", "413", "415", "422"}
WRITTEN = {"404", "409", "412"}
_PAGE = ["after", "limit"]
_EVENTS = ["after", "type", "limit", "wait"]
# version, operationId: path, method, statuses beyond the common ones, stability, query parameters.
# For version 2, only successful statuses: the tests' client checks that the document has the status
# of every refusal that they get.
OPERATIONS = {
    (1, "listOrders"): (ORDERS, "get", {"200", "304", "412"}, None, []),
    (1, "cancelOrder"): (ORDER, "delete", {"204", *WRITTEN}, "beta", []),
    (1, "placeOrder"): (ORDERS, "post", {"201", "412", *BODY}, "experimental", []),
    (1, "getOrder"): (ORDER, "get", {"200", "304", "404", "412"}, "experimental", []),
    (1, "shipOrder"): (f"{ORDER}/ship", "post", {"200", *WRITTEN, *BODY}, "experimental", []),
    (1, "getPet"): ("/pets/{petId}", "get", {"200", "404"}, None, []),
    (2, "listOrders"): (
        *(ORDERS, "get", {"200", "304"}, "beta"),
        [each.data_key for each in OrdersQuerySchema().fields.values()],
    ),
    (2, "placeOrder"): (ORDERS, "post", {"201"}, "beta", []),
    (2, "placeOrders"): (f"{ORDERS}/batch", "post", {"200"}, "beta", []),
    (2, "changeOrder"): (ORDER, "patch", {"200"}, "beta", []),
    (2, "reopenOrder"): (f"{ORDER}/reopen", "post", {"200"}, "beta", []),
    (2, "shipOrders"): ("/store/shipments", "post", {"200"}, "beta", []),
    (2, "getOrder"): (ORDER, "get", {"200", "304"}, "beta", []),
    (2, "cancelOrder"): (ORDER, "delete", {"204"}, "beta", []),
    (2, "shipOrder"): (f"{ORDER}/ship", "post", {"200"}, "beta", []),
    (2, "listOrderEvents"): (f"{ORDER}/events", "get", {"200"}, "beta", _PAGE),
    (2, "listEvents"): ("/store/events", "get", {"200"}, "beta", _EVENTS),
    (2, "importOrders"): (
        *("/imports", "post", {"200"}, "beta"),
        [
            *("dryRun", "shop", "column", "ignoreOthers", "dates", "zone", "ifKnown"),
            "uniqueReferences",
        ],
    ),
    (2, "getStats"): ("/store/stats", "get", {"200"}, "beta", ["days", "zone"]),
    (2, "getUsage"): ("/usage", "get", {"200"}, "beta", []),
    (2, "listKeys"): (KEYS, "get", {"200"}, "beta", []),
    (2, "issueKey"): (KEYS, "post", {"201"}, "beta", []),
    (2, "changeKey"): (KEY, "patch", {"200"}, "beta", []),
    (2, "revokeKey"): (KEY, "delete", {"204"}, "beta", []),
    (2, "rotateKey"): (f"{KEY}/rotate", "post", {"200"}, "beta", []),
    (2, "unbanKey"): (f"{KEY}/unban", "post", {"200"}, "beta", []),
    (2, "getAudit"): ("/audit", "get", {"200"}, "beta", _PAGE),
    (2, "listBackups"): ("/backups", "get", {"200"}, "beta", []),
    (2, "makeBackup"): ("/backups", "post", {"201"}, "beta", []),
    (2, "downloadBackup"): ("/backups/{name}", "get", {"200", "206"}, "beta", []),
    (2, "listWebhooks"): (HOOKS, "get", {"200"}, "beta", []),
    (2, "addWebhook"): (HOOKS, "post", {"201"}, "beta", []),
    (2, "changeWebhook"): (HOOK, "patch", {"200"}, "beta", []),
    (2, "removeWebhook"): (HOOK, "delete", {"204"}, "beta", []),
    (2, "rotateWebhook"): (f"{HOOK}/rotate", "post", {"200"}, "beta", []),
    (2, "pauseWebhook"): (f"{HOOK}/pause", "post", {"200"}, "beta", []),
    (2, "resumeWebhook"): (f"{HOOK}/resume", "post", {"200"}, "beta", []),
    (2, "pingWebhook"): (f"{HOOK}/ping", "post", {"200"}, "beta", []),
    (2, "listDeliveries"): (f"{HOOK}/deliveries", "get", {"200"}, "beta", _PAGE),
    (2, "redeliver"): (REDELIVER, "post", {"202"}, "beta", []),
}
SCHEMAS = {
    1: {"Order", "NewOrder", "Shipment", "Pet", "Error"},
    2: {"Order", "NewOrder", "OrderPatch", "Shipment", "OrderPage", "Event", "EventPage", "Error"}
    | {"HistoryPage", "Actor"}
    | {"Import", "ImportFiles", "FileFault", "Remark"}
    | {"Fault", "Shipments", "ShipmentResults", "ShipmentResult", "Shipped", "NotShipped"}
    | {"Placements", "PlacementResults", "PlacementResult", "Placed", "NotPlaced"}
    | {"Webhook", "WebhookPage", "NewWebhook", "WebhookPatch", "SecretWebhook", "Resumption"}
    | {"Act", "AuditPage", "Backup", "BackupPage"}
    | {"Ping", "Delivery", "DeliveryPage", "Redelivery"}
    | {"Key", "KeyPage", "NewKey", "KeyPatch", "IssuedKey", "Rotation"}
    | {"Stats", "StatusCounts", "Backups", "Day", "PausedWebhook", "Usage", "Windows", "Window"},
}
TAGS = {
    1: ["orders", "pets"],
    2: ["orders", "events", "reports", "keys", "webhooks", "administration"],
}
# The fields of an order, and of a new one. Version 1's never change.
FIELDS = {
    1: ({"id", "petId", "quantity", "shipDate", "complete"}, {"petId", "quantity", "shipDate"}),
    2: (
        {*SHOWN.values(), "complete"},
        {"petId", "quantity", *OPTIONAL, "uniqueReference"},
    ),
}
# Values of the parameters in paths.
NUMBERS = dict.fromkeys(("orderId", "keyId", "webhookId", "eventId", "name"), 1)
# The codes of version 1, which never change, and of version 2.
CODES_OF = {
    1: {
        *("malformed_request", "missing_api_key", "invalid_api_key", "insufficient_scope"),
        *("order_not_found", "pet_not_found", "not_found", "method_not_allowed", "request_timeout"),
        *("order_already_shipped", "precondition_failed", "payload_too_large"),
        *("unsupported_media_type", "validation_failed", "idempotency_key_reused"),
        *("rate_limit_exceeded", "api_key_banned", "headers_too_large", "internal_error"),
        *("not_implemented", "server_busy", "store_unavailable"),
    },
    2: {*CODES} - {"pet_not_found"},
}
# Headers that each version lacks and the other has.
LACKING = {
    1: {"Link", "Accept-Ranges", "Content-Range", "Content-Disposition"},
    2: {"Deprecation", "Sunset"},
}
ON_EVERY_RESPONSE = {
    "X-RateLimit-Limit",
    "X-RateLimit-Remaining",
    "X-RateLimit-Reset",
    "RateLimit",
    "RateLimit-Policy",
    "X-Request-Id",
    "Cache-Control",
}


@pytest.fixture(scope="module")
def documents(tmp_path_factory):
    return documents_of(tmp_path_factory.mktemp("instance"))


@pytest.fixture(params=[1, 2])
def version(request):
    return request.param


@pytest.fixture
def document(documents, version):
    return documents[version]


def documents_of(folder, **settings):
    client = Store(replace(Settings(instance=folder), **settings), SetClock()).app.test_client()
    responses = {version: client.get(f"/openapi/v{version}.json") for version in (1, 2)}
    assert {response.status_code for response in responses.values()} == {200}
    return {version: response.get_json() for version, response in responses.items()}


def operations(document):
    return {
        operation["operationId"]: (path, method, operation)
        for path, item in document["paths"].items()
        for method, operation in item.items()
        if isinstance(operation, dict)
    }


def assert_fits(document, schema, *examples):
    """Check that examples fit a schema of a document."""
    # Imported here, because it would slow down each process that collects tests.
    import openapi_schema_validator as known

    is_old = document["openapi"] == "3.0.3"
    kind = known.OAS30ReadValidator if is_old else known.OAS31Validator
    validator = kind({**schema, "components": document["components"]})
    for example in examples:
        validator.validate(example)


def test_it_is_an_openapi_document_of_its_version(document, version):
    from openapi_spec_validator import validate  # as above

    validate(document)
    assert document["openapi"] == {1: "3.0.3", 2: "3.1.0"}[version]
    assert document["info"]["version"] == f"{version}.0.0"
    assert document["security"] == [{"bearer": []}]
    scheme = document["components"]["securitySchemes"]["bearer"]
    assert "`sok_test_`" in scheme.pop("description")
    assert scheme == {"type": "http", "scheme": "bearer"}
    assert [each.pop("name") for each in document["tags"]] == TAGS[version]
    assert [len(each) for each in document["tags"]] == [version - 1 for _ in TAGS[version]]


@pytest.mark.parametrize(("version", "operation_id"), OPERATIONS)
def test_an_operation_is_described_as_agreed(documents, version, operation_id):
    path, method, statuses, stability, parameters = OPERATIONS[version, operation_id]
    found_path, found_method, operation = operations(documents[version])[operation_id]
    assert (found_path, found_method) == (path, method)
    common = COMMON - ({"403"} if operation_id == "getUsage" else set())
    described = set(operation["responses"])
    assert common <= described
    assert {each for each in described - common if version == 1 or each < "400"} == statuses
    assert operation.get("x-stability") == stability
    named = [each["name"] for each in operation.get("parameters", []) if each["in"] == "query"]
    assert named == parameters


def test_each_header_that_causes_a_refusal_is_a_parameter_of_the_operation(documents):
    for version, document in documents.items():
        for name, (_, method, operation) in operations(document).items():
            sent = {each["name"] for each in operation["parameters"] if each["in"] == "header"}
            conditions = {"If-Match", "If-None-Match"}
            assert (conditions <= sent) == ("412" in operation["responses"]), (version, name)
            if "Idempotency-Key" in sent:
                assert {"400", "422"} <= set(operation["responses"])
            assert ("Idempotency-Key" in sent) == (
                method != "get" and (version == 2 or name == "placeOrder")
            )


def test_an_example_sent_unchanged_changes_no_order(documents, client):
    for _ in range(45):
        client.place()
    client.version = 2
    _, _, operation = operations(documents[2])["shipOrders"]
    body = operation["requestBody"]["content"]["application/json"]
    results = client.post("/v2/store/shipments", json=body["example"]).get_json()["results"]
    assert {each["error"]["code"] for each in results} == {"order_not_found"}
    # Nor does any other example use an order id that a store would reach.
    ids = re.findall(
        r'(?:"orderId": |/orders/|[Oo]rder |"value": {"id": )([0-9]+)', json.dumps(documents)
    )
    assert {*map(int, ids)} <= {4_000_000_000_041, 4_000_000_000_042}
    assert len(ids) > 10


def test_there_are_no_other_operations(document, version):
    assert {(version, name) for name in operations(document)} == {
        each for each in OPERATIONS if each[0] == version
    }


def test_only_pets_are_deprecated_with_a_sunset(documents):
    deprecated = {
        (version, name): operation["x-deprecated-sunset"]
        for version, document in documents.items()
        for name, (_, _, operation) in operations(document).items()
        if operation.get("deprecated")
    }
    assert deprecated == {(1, "getPet"): "2030-12-05"}


def test_every_response_has_the_headers_of_every_response(document):
    headers = document["components"]["headers"]
    assert all(headers[name]["required"] for name in ON_EVERY_RESPONSE)
    for _, _, operation in operations(document).values():
        for response in operation["responses"].values():
            assert set(response["headers"]) >= ON_EVERY_RESPONSE


def test_every_body_has_an_example_that_fits_its_schema(document):
    for operation_id, (_, _, operation) in operations(document).items():
        bodies = {**operation["responses"], "request": operation.get("requestBody", {})}
        for name, body in bodies.items():
            if body.get("content", {}).keys() & {FORM, BINARY}:
                continue
            content = body.get("content", {}).get("application/json", {})
            examples = [each["value"] for each in content.get("examples", {}).values()]
            examples += [content["example"]] if "example" in content else []
            is_empty = name in {"204", "304"} or not body
            assert bool(examples) == bool(content) == (not is_empty), (operation_id, name)
            if examples:
                assert_fits(document, content["schema"], *examples)


def test_a_header_of_one_code_is_not_required_of_other_codes_of_its_status(documents):
    refused = operations(documents[2])["changeOrder"][2]["responses"]["409"]
    assert "reference_exists" in refused["description"]
    assert not any(refused["headers"][each]["required"] for each in ("Location", "ETag", "Vary"))


def test_a_body_is_required_for_placing_and_optional_for_shipping(document, version):
    required = {
        name: operation["requestBody"]["required"]
        for name, (_, _, operation) in operations(document).items()
        if "requestBody" in operation
    }
    only_2 = dict.fromkeys(("changeOrder", "shipOrders", "importOrders", "placeOrders"), True)
    only_2 |= {"issueKey": True, "changeKey": True, "rotateKey": False}
    only_2 |= {"addWebhook": True, "changeWebhook": True, "resumeWebhook": False}
    only_2 = only_2 if version == 2 else {}
    assert required == {"placeOrder": True, "shipOrder": False, **only_2}


def test_the_codes_and_headers_are_those_of_the_version(document, version):
    error = document["components"]["schemas"]["Error"]
    kind = {1: "enum", 2: "x-extensible-enum"}[version]
    codes = error["properties"]["code"][kind]
    assert codes == [each for each in CODES if each in CODES_OF[version]]
    assert error["required"] == ["code", "message", "status"]
    assert not LACKING[version] & set(document["components"]["headers"])
    _, _, ship = operations(document)["shipOrder"]
    examples = ship["responses"]["409"]["content"]["application/json"]["examples"]
    assert set(examples) == {"order_already_shipped", "order_already_cancelled"} & {*codes}


def test_each_code_belongs_to_an_operation_or_a_refusal_of_the_server_itself(documents):
    of_operations = {
        code
        for document in documents.values()
        for _, _, operation in operations(document).values()
        for response in operation["responses"].values()
        for code in response.get("content", {}).get("application/json", {}).get("examples", ())
        if code in CODES
    }
    # Returned where there is no operation.
    of_paths = {"not_found", "method_not_allowed"}
    of_none = set(CODES) - of_operations - {each.code for each in SERVER_ANSWERS.values()}
    assert of_none == of_paths, "a code belongs in `refusals=` of the operations that have it"


def test_each_refusal_has_an_answer_and_each_code_a_sample(tmp_path):
    kinds = [each for each in vars(domain).values() if isinstance(each, type)]
    rules = [
        kind(*[1] * len(fields(kind)))
        for kind in kinds
        if issubclass(kind, domain.Refusal) and not kind.__subclasses__()
    ]
    codes = {answer_to(each).code for each in rules}
    codes |= {kind.code for kind in WebRefusal.__subclasses__()}
    views = Store(Settings(instance=tmp_path), SetClock()).app.view_functions.values()
    documented = [vars(each).get("_apidoc", {}).get("manual_doc", {}) for each in views]
    codes.update(*(each.get("x-refusals", ()) for each in documented))
    assert codes - {*EXAMPLES} == set(), "a row or a sample is missing in orders/web/refusals.py"


def test_each_code_is_named_in_a_test():
    # The lists of codes in this file don't count.
    files = [file for file in TESTS.rglob("*.py") if file != Path(__file__)]
    text = "\n".join(file.read_text(encoding="utf-8") for file in files)
    assert [each for each in CODES if f'"{each}"' not in text] == []


def test_the_schemas_have_their_names_and_fields(document, version):
    schemas = document["components"]["schemas"]
    assert set(schemas) == SCHEMAS[version]
    order, new_order = FIELDS[version]
    assert set(schemas["Order"]["properties"]) == order
    assert set(schemas["NewOrder"]["properties"]) == new_order
    absent = {*OPTIONAL, "tracking"} if version == 2 else order
    assert set(schemas["Order"].get("required", ())) == order - absent
    assert schemas["NewOrder"]["required"] == ["petId"]
    for name in ("Order", "NewOrder", "Pet", "Event"):
        for field in {"id", "petId", "orderId"} & set(schemas.get(name, {}).get("properties", ())):
            assert schemas[name]["properties"][field]["format"] == "int64"


def test_all_fields_of_an_event_are_required_and_only_its_request_id_may_be_null(documents):
    event = documents[2]["components"]["schemas"]["Event"]
    assert set(event["required"]) == set(event["properties"])
    assert event["properties"]["requestId"]["type"] == ["string", "null"]


def test_generators_find_names_for_enums_and_no_defaults_in_bodies(documents):
    parameters = operations(documents[2])["listOrders"][2]["parameters"]
    by_name = {each["name"]: each["schema"] for each in parameters}
    assert by_name["sort"]["x-enum-varnames"][2:4] == ["PLACED_AT", "PLACED_AT_DESCENDING"]
    assert by_name["after"]["minLength"] == 1
    schemas = documents[2]["components"]["schemas"]
    assert not [name for name, each in schemas.items() if '"default"' in json.dumps(each)]
    assert "1 unless given" in schemas["NewOrder"]["properties"]["quantity"]["description"]
    assert schemas["NewOrder"]["required"] == ["petId"]
    assert "2^53-1" in documents[2]["info"]["description"]


def test_each_enum_says_that_values_may_be_added_and_readers_accept_new_ones(documents):
    document = documents[2]
    strict = [*found(document["paths"], "enum"), *found(document["components"], "enum")]
    assert {"pending", "order.placed"} <= {each["enum"][0] for each in strict}
    assert all("Others may be added." in each["description"] for each in strict)
    for name in ("Error", "Event", "Fault", "Order", "Usage"):
        assert not list(found(document["components"]["schemas"][name], "enum"))
    for each in (opened := [*found(document["components"], "x-extensible-enum")]):
        assert each["type"] == "string"
        values = ", ".join(each["x-extensible-enum"])
        assert f"One of {values}; others may be added." in each["description"]
    assert len(opened) >= 5
    schemas = document["components"]["schemas"]
    page = operations(document)["listEvents"][2]["responses"]["200"]["content"]
    event = {**page["application/json"]["example"]["events"][0], "type": "order.returned"}
    assert_fits(document, schemas["Event"], event)
    for each in found(document["webhooks"], "enum"):
        assert "other types may be added" in each["description"]


def found(part, name):
    """Yield each object in a part of a document that has this name."""
    if isinstance(part, dict):
        if name in part:
            yield part
        part = [*part.values()]
    for each in part if isinstance(part, list) else ():
        yield from found(each, name)


def test_each_result_of_a_batch_is_an_order_or_an_error(documents):
    schemas = documents[2]["components"]["schemas"]
    for name in ("ShipmentResult", "PlacementResult"):
        done, refused = (
            schemas[each["$ref"].rpartition("/")[2]]["required"] for each in schemas[name]["oneOf"]
        )
        assert (done, refused) == (["orderId", "order"], ["orderId", "error"])


def test_a_document_is_compressed_and_can_be_revalidated(client, version):
    path = f"/openapi/v{version}.json"
    plain, packed = client.get(path), client.get(path, headers={"Accept-Encoding": "gzip"})
    assert gzip.decompress(packed.data) == plain.data
    assert len(packed.data) < len(plain.data) / 8
    assert plain.headers["Cache-Control"] == "no-cache"
    unchanged = client.get(path, headers={"If-None-Match": plain.headers["ETag"]})
    assert (unchanged.status_code, unchanged.data) == (304, b"")


def test_the_servers_are_the_configured_ones(document, version, tmp_path):
    assert [each["url"] for each in document["servers"]] == [f"http://127.0.0.1:8080/v{version}"]
    configured = documents_of(
        tmp_path,
        base_url="https://orders.example.com/v1",
        staging_base_url="https://staging.example.com/shop/v1",
    )
    assert [each["url"] for each in configured[version]["servers"]] == [
        f"https://orders.example.com/v{version}",
        f"https://staging.example.com/shop/v{version}",
    ]


def test_unknown_parameters_are_refused_by_name_on_every_route_of_version_2(documents, store):
    client_v2 = store.client(scopes=SCOPES).speaking(2)
    client_v2.place()
    newest = client_v2.get("/v2/store/events").data
    for path, method, described in operations(documents[2]).values():
        target = f"/v2{path.format(**NUMBERS)}"
        body = {"json": {"petId": 7}} if method == "post" else {}
        response = client_v2.request(method.upper(), f"{target}?colour=red&Limit", **body)
        assert_error(response, 422, "validation_failed")
        message = response.get_json()["message"]
        assert message.count("is not a parameter of this request") == 2
        assert {"colour", "Limit"} <= set(re.findall(r"\w+", message))
        assert "422" in described["responses"]
        assert client_v2.request("OPTIONS", f"{target}?colour=red").status_code == 204
    assert client_v2.get("/v2/usage?&").status_code == 200
    assert client_v2.get("/v2/store/events").data == newest


def test_the_answers_of_version_2_fit_its_document(documents, store):
    client_v2 = store.client(scopes=SCOPES).speaking(2)
    assert client_v2.post("/v2/webhooks", json={"url": "https://192.88.98.1/"}).status_code == 201
    client_v2.place(7, reference="R-1", shipDate="2026-12-24T08:00:00Z")
    client_v2.place()
    client_v2.ship(1)
    client_v2.cancel(2)
    for operation_id, path in {
        "listOrders": "/store/orders?limit=1",
        "getOrder": "/store/orders/1",
        "listOrderEvents": "/store/orders/2/events?after=1",
        "listEvents": "/store/events?limit=3",
        "getStats": "/store/stats",
        "getUsage": "/usage",
        "listKeys": "/keys",
        "listWebhooks": "/webhooks",
        "getAudit": "/audit",
        "listDeliveries": "/webhooks/1/deliveries",
    }.items():
        _, _, operation = operations(documents[2])[operation_id]
        described = operation["responses"]["200"]
        response = client_v2.get(f"/v2{path}")
        assert response.status_code == 200
        schema = described["content"]["application/json"]["schema"]
        assert_fits(documents[2], schema, response.get_json())
        # The headers in PROTECTION are for browsers that open an address of the API.
        named = set(response.headers.keys()) - {"Content-Type", "Content-Length", *PROTECTION}
        assert named <= set(described["headers"])
