// Places an order and lists all orders; waits when the store says so. For Node 20 or later.
// With `follow` as its argument, it prints every change of every order instead, by asking every
// five seconds; with `follow --live`, from a stream, as they are made.
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
    await pause(wait);
  }
}

const pause = (seconds) => new Promise((resume) => setTimeout(resume, 1000 * seconds));
const show = ({ id, type, orderId }) => console.log(`${id} ${type} ${orderId}`);

// Prints events as they come, until the stream ends or is refused. The last one's id.
async function stream(after) {
  const headers = { Accept: "text/event-stream", "Last-Event-ID": after };
  headers.Authorization = `Bearer ${STORE_KEY}`;
  const silence = new AbortController();
  // The store says something every 15 s.
  const timer = setTimeout(() => silence.abort(), 40_000);
  try {
    const { body } = await fetch(STORE_URL + EVENTS, { headers, signal: silence.signal });
    let begun = "";
    for await (const piece of body.pipeThrough(new TextDecoderStream())) {
      timer.refresh();
      const lines = (begun + piece).split("\n");
      begun = lines.pop();
      for (const line of lines.filter((each) => each.startsWith("data: "))) {
        const event = JSON.parse(line.slice("data: ".length));
        show(event);
        after = event.id;
      }
    }
  } catch {
    // The connection broke, or there is none yet.
  }
  clearTimeout(timer);
  return after;
}

// Prints each event once. A shop keeps `after` with what it did, and goes on from there.
async function follow(live, after = 0) {
  for (;;) {
    if (live) after = await stream(after);
    const page = await ask("GET", `${EVENTS}?after=${after}&limit=200`);
    page.events.forEach(show);
    after = page.next;
    if (!page.more) await pause(live ? 1 : 5);
  }
}

async function place() {
  // One value for each order: sent again with the same value, it is placed once.
  const headers = { "Content-Type": "application/json", "Idempotency-Key": crypto.randomUUID() };
  const body = JSON.stringify({ petId: 7, quantity: 2 });
  const placed = await ask("POST", ORDERS, { headers, body });
  console.log(`Placed order ${placed.id}, one of ${(await ask("GET", ORDERS)).length}.`);
}

const [what, how] = process.argv.slice(2);
(what === "follow" ? follow(how === "--live") : place()).catch((error) => {
  console.error(error.message);
  process.exitCode = 1;
});
