"""What each scope allows: every operation with every kind of key."""

from __future__ import annotations

import pytest

from orders.apikeys import SCOPES
from tests.support.stores import assert_error

# For each operation, the scope that it needs (None: any key) and its status for a key with that
# scope, where the subject is missing and the body is the document's example.
TAKES = {
    (1, "listOrders"): ("read", 200),
    (1, "placeOrder"): ("write", 201),
    (1, "getOrder"): ("read", 404),
    (1, "cancelOrder"): ("write", 404),
    (1, "shipOrder"): ("write", 404),
    (1, "getPet"): ("read", 404),
    (2, "listOrders"): ("read", 200),
    (2, "placeOrder"): ("write", 201),
    (2, "getOrder"): ("read", 404),
    (2, "changeOrder"): ("write", 404),
    (2, "cancelOrder"): ("write", 404),
    (2, "shipOrder"): ("write", 404),
    (2, "reopenOrder"): ("write", 404),
    (2, "placeOrders"): ("write", 200),
    (2, "shipOrders"): ("write", 200),
    (2, "importOrders"): ("admin", 415),  # no form is sent
    (2, "listOrderEvents"): ("read", 404),
    (2, "listEvents"): ("read", 200),
    (2, "getStats"): ("read", 200),
    (2, "getUsage"): (None, 200),
    (2, "listKeys"): ("admin", 200),
    (2, "issueKey"): ("admin", 201),
    (2, "changeKey"): ("admin", 404),
    (2, "rotateKey"): ("admin", 404),
    (2, "revokeKey"): ("admin", 404),
    (2, "unbanKey"): ("admin", 404),
    (2, "getAudit"): ("admin", 200),
    (2, "listBackups"): ("admin", 200),
    (2, "makeBackup"): ("admin", 201),
    (2, "downloadBackup"): ("admin", 404),
    (2, "listWebhooks"): ("webhooks", 200),
    (2, "addWebhook"): ("webhooks", 201),
    (2, "changeWebhook"): ("webhooks", 404),
    (2, "removeWebhook"): ("webhooks", 404),
    (2, "rotateWebhook"): ("webhooks", 404),
    (2, "pauseWebhook"): ("webhooks", 404),
    (2, "resumeWebhook"): ("webhooks", 404),
    (2, "pingWebhook"): ("webhooks", 404),
    (2, "listDeliveries"): ("webhooks", 404),
    (2, "redeliver"): ("webhooks", 404),
}
KEYS = {
    "none": (),
    "read": ("read",),
    "write": ("write",),
    "webhooks": ("webhooks",),
    "admin": SCOPES,
}


@pytest.fixture
def operations(store):
    """Every operation of both documents: its method, its path, and the example of its body."""
    found = {}
    for version in (1, 2):
        document = store.anonymous().get(f"/openapi/v{version}.json").get_json()
        for path, item in document["paths"].items():
            for method, each in item.items():
                if isinstance(each, dict):
                    body = each.get("requestBody", {}).get("content", {}).get("application/json")
                    found[version, each["operationId"]] = (
                        method,
                        f"/v{version}{path}".replace("{", "9{").format_map(Nines()),
                        body and body["example"],
                    )
    return found


class Nines(dict):
    """Values of path parameters: all nines."""

    def __missing__(self, name):
        return "9"


def test_each_operation_answers_each_kind_of_key_by_its_scopes(store, operations):
    assert operations.keys() == TAKES.keys()
    clients = {name: store.client(scopes=scopes) for name, scopes in KEYS.items()}
    clients["nobody"] = store.anonymous()
    for name, (method, path, body) in operations.items():
        scope, status = TAKES[name]
        if "Backup" in name[1] and store.settings.is_on_postgres:
            status = 409  # backups are off
        for who, client in clients.items():
            sent = {"json": body} if body is not None else {}
            response = client.request(method.upper(), path, **sent)
            if who == "nobody":
                assert_error(response, 401, "missing_api_key")
            elif scope is None or scope in KEYS[who]:
                assert response.status_code == status, (name, who, response.get_json())
            else:
                assert_error(response, 403, "insufficient_scope")
                assert f"'{scope}'" in response.get_json()["message"]


@pytest.mark.parametrize("who", KEYS)
def test_options_and_unknown_paths_need_no_scope(store, who):
    client = store.client(scopes=KEYS[who])
    assert client.options("/v2/keys").status_code == 204
    assert_error(client.get("/v2/nothing"), 404, "not_found")
    assert client.head("/v2/keys").status_code == (200 if who == "admin" else 403)
