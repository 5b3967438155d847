// Places an order and lists all orders; waits when the store says so. For Node 20 or later.
// With `follow` as its argument, it prints every change of every order instead, as they are made.
// The store's address is in STORE_URL, the API key in STORE_KEY.
"use strict";

const { STORE_URL, STORE_KEY } = process.env;
const ORDERS = "/v1/store/orders";
const EVENTS = "/v2/store/events";
const TRIES = 6;
// In seconds. A store that asks for more has the day's quota used up: come back later.
const LONGEST_WAIT = 900;

async function ask(method, path, { headers, ...options } = {}) {
  for (let tried = 1; ; tried += 1) {
    let status, told, answer, failure;
    try {
      const response = await fetch(STORE_URL + path, {
        ...options,
        method,
        headers: { Authorization: `Bearer ${STORE_KEY}`, ...headers },
        signal: AbortSignal.timeout(30_000),
      });
      ({ status } = response);
      told = Number(response.headers.get("Retry-After"));
      answer = JSON.parse((await response.text()) || "null");
      if (response.ok) return answer;
      failure = `${status} ${answer.code}: ${answer.message}`;
    } catch (error) {
      [status, told, failure] = [0, 0, error.cause?.message ?? error.message];
    }
    // As long as Retry-After says, and on top of that half to all of 1 s, 2 s, 4 s, …
    const wait = told + 2 ** (tried - 1) * (0.5 + Math.random() / 2);
    const mayGoAway = [0, 429, 503].includes(status);
    if (!mayGoAway || tried === TRIES || wait > LONGEST_WAIT) throw new Error(failure);
    await new Promise((resume) => setTimeout(resume, 1000 * wait));
  }
}

// Prints each event once. A shop keeps `after` with what it did, and goes on from there.
async function follow(after = 0) {
  for (;;) {
    const page = await ask("GET", `${EVENTS}?after=${after}&limit=200`);
    for (const { id, type, orderId } of page.events) console.log(`${id} ${type} ${orderId}`);
    after = page.next;
    if (!page.more) await new Promise((resume) => setTimeout(resume, 5000));
  }
}

async function place() {
  // One value for each order: sent again with the same value, it is placed once.
  const headers = { "Content-Type": "application/json", "Idempotency-Key": crypto.randomUUID() };
  const body = JSON.stringify({ petId: 7, quantity: 2 });
  const placed = await ask("POST", ORDERS, { headers, body });
  console.log(`Placed order ${placed.id}, one of ${(await ask("GET", ORDERS)).length}.`);
}

(process.argv[2] === "follow" ? follow() : place()).catch((error) => {
  console.error(error.message);
  process.exitCode = 1;
});
