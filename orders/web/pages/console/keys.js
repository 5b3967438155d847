// The shop's keys, for those who manage it. A secret is in this view alone, and goes with it.

import { confirm } from "./actions.js";
import { change, get, newName } from "./api.js";
import { bdi, byId, el } from "./dom.js";
import { adds, choice, field, pairs, revealed } from "./forms.js";
import { count, counted, inSentence, instant } from "./format.js";
import { announce, describe, failurePanel } from "./notices.js";
import { session } from "./session.js";
import { now } from "./time.js";

const DAY_MS = 86_400_000;
const SOON_MS = 7 * DAY_MS;
const FIGURES_OF_ITS_OWN = "enterprise";
const PLANS = ["free", "pro", "business", FIGURES_OF_ITS_OWN];
const ACCESS = [
  ["read write", "View and edit orders"],
  ["read", "View orders"],
  ["read write webhooks", "View and edit orders, manage its own webhooks"],
  ["webhooks", "Manage its own webhooks"],
  ["admin", "Manage the shop: everything"],
];
const SCOPES = { read: "view orders", write: "edit orders", webhooks: "manage its own webhooks" };
const GRACES = [[0, "Not at all: it was seen by others"], [1, "For an hour"], [24, "For a day"], [168, "For a week"]];
const LABELS = new Map([["name", "The name"], ["plan", "The plan"], ["expiresInDays", "The number of days"], ["perMinute", "The requests a minute"], ["perDay", "The requests a day"]]);
const LOST = "The connection was lost, so we can't tell whether the key was issued. Send it again: it won't be issued twice.";
const ADVICE = ", and hand it on in private. Whoever has it can do what the key may.";
const SECRET_LOST = "It is done, but the new secret was lost with the connection, and it can't be shown again. Revoke the key, and issue another one.";

/** Make the view. */
export function view(root) {
  const loading = new AbortController();
  const secret = el("div", { role: "status" });
  const list = el("div", { class: "stack" });
  const [form, offer] = issuing(issued);
  root.replaceChildren(el("div", { class: "head" }, el("h1", { tabindex: "-1", text: "Keys" })), secret, list, form);

  async function load() {
    try {
      const { keys } = await get("keys", { signal: loading.signal });
      offer(keys);
      show(keys);
    } catch (failure) {
      if (failure.name !== "AbortError") list.replaceChildren(failurePanel(failure, load));
    }
  }

  function show(keys) {
    const focused = list.contains(document.activeElement) && document.activeElement.id;
    const isOpen = list.querySelector("details")?.open;
    const [valid, over] = [keys.filter(isValid), keys.filter((key) => !isValid(key))];
    list.replaceChildren(el("ul", { class: "two" }, ...valid.map(card)), over.length ? former(over, isOpen) : "");
    if (focused !== false) (byId(focused) || root.querySelector("h1")).focus({ preventScroll: true });
  }

  function card(key) {
    const { id, name, bannedUntil, expires } = key;
    const button = (action, text, act, kind = "") => el("button", { id: `${action}-${id}`, class: `button ${kind}`, type: "button", "aria-label": `${text}: ${name}`, text, on: { click: () => act(key) } });
    const isSoon = expires && Date.parse(expires) - now() < SOON_MS;
    // Keys may have the same name, regions may not.
    return el("li", { class: "panel stack" },
      el("h2", {}, bdi(name), id === session.profile?.id ? " (yours)" : ""),
      bannedUntil && el("p", { class: "notice bad", text: `Blocked after too many requests, until ${inSentence(bannedUntil)}.` }),
      isSoon && el("p", { class: "notice", text: `Expires ${inSentence(expires)}. Rotating doesn't extend it: issue a new key before that.` }),
      facts(key),
      el("div", { class: "buttons" }, bannedUntil && button("unban", "Unblock", unban, "main"), button("edit", "Change", edit), button("rotate", "New secret", rotate), button("revoke", "Revoke", revoke)));
  }

  async function unban({ id, name }) {
    try {
      await change("POST", `keys/${id}/unban`, undefined, { name: newName() });
      announce(`${name} is no longer blocked.`);
    } catch (failure) {
      announce(describe(failure));
    }
    return load();
  }

  async function rotate({ id, name }) {
    const isOwn = id === session.profile.id;
    // Without a grace, a request of this page that is on its way would end its session before it has the secret.
    const grace = choice("grace", GRACES.filter(([hours]) => hours || !isOwn), 24);
    // Tried again after a lost answer, it must be the same.
    let [hours, answer] = [null, null];
    const isDone = await confirm({
      title: `New secret for ${name}?`,
      body: [field("The previous secret works on", grace), el("p", { class: "hint", text: isOwn ? "You're signed in with this key. This page goes on with the new secret." : "Whoever uses this key needs the new secret by then." })],
      yes: "Make a new secret",
      no: "Leave it",
      work: async (once) => {
        hours ??= Number(grace.value);
        answer = (await change("POST", `keys/${id}/rotate`, { graceHours: hours }, { name: once })).data;
        if (isOwn && answer.secret) session.begin(answer.secret, session.profile, session.isRemembered);
      },
    });
    if (answer) reveal(answer);
    return isDone && load();
  }

  async function edit(key) {
    const [body, wanted] = editing(key);
    // Tried again after a lost answer, it must be the same.
    let patch = null;
    const isDone = await confirm({
      title: `Change ${key.name}`,
      body,
      yes: "Save",
      no: "Leave it",
      success: "The key is changed.",
      check: () => (patch ? "" : wanted().wrong || ""),
      work: async (once) => {
        patch ??= wanted().patch;
        try {
          await change("PATCH", `keys/${key.id}`, patch, { name: once });
        } catch (failure) {
          if (failure.status !== 422) throw failure;
          patch = null;
          throw Object.assign(failure, { labels: LABELS });
        }
      },
    });
    return isDone && load();
  }

  async function revoke({ id, name }) {
    const isOwn = id === session.profile.id;
    const isDone = await confirm({
      title: `Revoke ${name}?`,
      body: [el("p", { text: `Whoever uses this key is locked out at once, for good.${isOwn ? " You're signed in with it: you will be signed out." : ""}` })],
      yes: "Revoke the key",
      no: "Keep it",
      danger: true,
      success: `${name} is revoked.`,
      work: (once) => change("DELETE", `keys/${id}`, undefined, { name: once }),
    });
    return isDone && load();
  }

  function issued(key) {
    reveal(key);
    return load();
  }

  function reveal(key) {
    if (loading.signal.aborted) return;
    secret.replaceChildren(key.secret ? revealed(key.name, key.secret, ADVICE) : el("p", { class: "notice bad", text: SECRET_LOST }));
    secret.querySelector("input")?.focus();
  }

  function dispose() {
    loading.abort();
    secret.replaceChildren();
  }

  return { title: "Keys", update: load, changed: (events) => (events.length ? undefined : load()), dispose };
}

function isValid({ revoked, expires }) {
  return !revoked && (!expires || Date.parse(expires) > now());
}

function facts({ scopes, plan, perMinute, perDay, lastUsed, expires, prefix, graceUntil }) {
  const may = scopes.includes("admin") ? "manage the shop: everything" : scopes.map((scope) => SCOPES[scope] || scope).join(", ");
  const figures = perMinute && perDay ? ` (${count(perMinute)} a minute, ${count(perDay)} a day)` : "";
  return pairs([
    ["May", may], ["Plan", `${plan}${figures}`], ["Last used", lastUsed ? instant(lastUsed) : "never"], ["Expires", expires ? instant(expires) : "never"],
    ["Begins with", prefix], graceUntil && ["Previous secret", el("span", {}, "works until ", instant(graceUntil))],
  ]);
}

function former(keys, isOpen) {
  const row = ({ name, revoked, expires }) => el("tr", {}, el("th", { scope: "row" }, bdi(name)), el("td", {}, revoked ? "Revoked " : "Expired ", instant(revoked || expires)));
  return el("details", { class: "panel", open: isOpen },
    el("summary", { text: `${counted(keys.length, "key")} no longer valid` }),
    el("table", { class: "plain" },
      el("thead", {}, el("tr", {}, el("th", { scope: "col", text: "Name" }), el("th", { scope: "col", text: "Ended" }))), el("tbody", {}, ...keys.map(row))));
}

// The fields to change a key; and a function that returns the patch they mean, or what is wrong with them.
function editing(key) {
  const name = el("input", { id: "edit-name", maxlength: 100, autocomplete: "off", value: key.name });
  const plan = choice("edit-plan", [...new Set([...PLANS, key.plan])].map((each) => [each, each]), key.plan);
  const number = (id, value) => el("input", { id, inputmode: "numeric", autocomplete: "off", value });
  const [minute, day, days] = [number("edit-minute", key.perMinute), number("edit-day", key.perDay), number("edit-days")];
  const expiry = choice("edit-expiry", [["", "As now"], ["never", "Never"], ["days", "Some days from now"]], "");
  const figures = [field("Requests a minute", minute), field("Requests a day", day)];
  const inDays = field("After how many days", days);
  const show = () => {
    for (const each of figures) each.hidden = plan.value !== FIGURES_OF_ITS_OWN;
    inDays.hidden = expiry.value !== "days";
  };
  for (const each of [plan, expiry]) each.addEventListener("change", show);
  show();
  const wanted = () => {
    const patch = {};
    const numbers = [[minute, "perMinute"], [day, "perDay"], [days, "expiresInDays"]].filter(([input]) => !input.parentElement.hidden);
    const wrong = name.value.trim() ? numbers.find(([input]) => !/^\d+$/.test(input.value.trim())) : [name];
    if (wrong) return { wrong: wrong[1] ? `${LABELS.get(wrong[1])} must be a whole number.` : "Enter a name." };
    if (name.value.trim() !== key.name) patch.name = name.value.trim();
    if (plan.value !== key.plan) patch.plan = plan.value;
    for (const [input, of] of numbers) patch[of] = Number(input.value.trim());
    if (expiry.value === "never") patch.expiresInDays = null;
    return { patch };
  };
  return [[field("Name", name), field("Plan", plan, "Another plan begins new limits at once."), ...figures, field("Expires", expiry), inDays], wanted];
}

// The form to issue a key; and a function that offers the plans of these keys, too.
function issuing(issued) {
  const name = el("input", { id: "new-name", name: "name", maxlength: 100, autocomplete: "off" });
  const plan = choice("new-plan", PLANS.map((each) => [each, each]), "pro");
  const access = choice("new-access", ACCESS, ACCESS[0][0]);
  const number = (id, of) => el("input", { id, name: of, inputmode: "numeric", autocomplete: "off" });
  const [days, minute, day] = [number("new-days", "expiresInDays"), number("new-minute", "perMinute"), number("new-day", "perDay")];
  const figures = [field("Requests a minute", minute), field("Requests a day", day)];
  const notice = el("p", { class: "notice bad", role: "alert", hidden: true });
  const submit = el("button", { class: "button main", type: "submit", text: "Issue key" });
  const form = el("form", { class: "panel place", novalidate: true, "aria-labelledby": "issue" },
    el("h2", { id: "issue", text: "Issue a key" }), notice, field("Name", name, "Who or what uses it, such as “Ada” or “the web shop”."),
    field("May", access), field("Plan", plan), ...figures, field("Expires after how many days", days, "Leave empty for never."), el("div", { class: "buttons" }, submit));
  const showFigures = () => {
    for (const each of figures) each.hidden = plan.value !== FIGURES_OF_ITS_OWN;
  };
  plan.addEventListener("change", showFigures);
  showFigures();
  function read() {
    const key = { name: name.value.trim(), plan: plan.value, scopes: access.value.split(" ") };
    if (!key.name) return { wrong: ["Enter a name.", name] };
    for (const each of plan.value === FIGURES_OF_ITS_OWN ? [days, minute, day] : [days]) {
      const text = each.value.trim();
      if (!/^\d*$/.test(text) || (!text && each !== days)) return { wrong: [`${LABELS.get(each.name)} must be a whole number.`, each] };
      if (text) key[each.name] = Number(text);
    }
    return { wanted: key };
  }

  const added = (data) => {
    showFigures();
    issued(data);
  };
  adds(form, { path: "keys", submit, notice, labels: LABELS, lost: LOST, read, added });
  const offer = (keys) => {
    const known = new Set([...plan.options].map(({ value }) => value));
    for (const each of new Set(keys.map((key) => key.plan))) if (!known.has(each)) plan.append(el("option", { value: each, text: each }));
  };
  return [form, offer];
}
