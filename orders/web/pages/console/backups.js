// The copies of the store that the service keeps: made, checked, and saved as a file.

import { change, download, get, newName, NoAnswer } from "./api.js";
import { bdi, el, refocus, setText } from "./dom.js";
import { count, instant } from "./format.js";
import { announce, describe, failurePanel } from "./notices.js";

const SECONDS_TO_MAKE = 600;
const SOUND = "sound";
const LOST = "The connection was lost, so we can't tell whether the backup was made. Try again: none is made twice.";
const CUT = "The download broke off. Try again.";
const OFF = "This service makes no backups: its folder, “backups” in instance/config.toml, is set to nothing, this key is of test mode, " +
  "or the orders are on PostgreSQL. To turn them on, set the folder and start the service again; on PostgreSQL, use pg_dump.";

/** Make the view. */
export function view(root, shop) {
  const loading = new AbortController();
  const notice = el("p", { class: "notice bad", role: "alert", hidden: true });
  const make = el("button", { class: "button main", type: "button", text: "Make a backup", on: { click: begin } });
  const work = el("div", { role: "status" });
  const list = el("div", { class: "stack" });
  root.replaceChildren(el("div", { class: "head" }, el("h1", { tabindex: "-1", text: "Backups" }), make), notice, work, list);
  let isBusy = false;
  // Sent again after a lost answer, it is made once.
  let once = newName();

  async function load() {
    try {
      show(await get("backups", { signal: loading.signal }));
    } catch (failure) {
      if (failure.name === "AbortError") return;
      make.hidden = failure.code === "backups_off";
      list.replaceChildren(make.hidden ? el("div", { class: "panel blank" }, el("h2", { text: "There are no backups" }), el("p", { text: OFF })) : failurePanel(failure, load));
    }
  }

  function show({ backups, sameDisk }) {
    make.hidden = false;
    const empty = el("div", { class: "panel blank" }, el("h2", { text: "There is no backup yet" }), el("p", { text: "One is made each day. You can make one now." }));
    list.replaceChildren(
      el("p", { class: sameDisk ? "notice" : "soft", text: sameDisk ? "Backups are on the same disk as the orders: if it fails, both are lost. Save one elsewhere now and then." : "Backups are on another disk than the orders." }),
      backups.length ? el("ul", { class: "two" }, ...backups.map(card)) : empty);
  }

  function card({ name, made, bytes, state }) {
    const save = el("button", { class: "button", type: "button", "aria-label": `Download: ${name}`, text: "Download", on: { click: () => fetchFile(name) } });
    const facts = [["File", bdi(name)], ["Size", size(bytes)], ["State", state === SOUND ? "Sound" : el("b", {}, "Not sound: it ", bdi(state))]];
    return el("li", { class: "panel stack" }, el("h2", {}, instant(made)),
      el("dl", { class: "facts" }, ...facts.map(([term, value]) => el("div", {}, el("dt", { text: term }), el("dd", {}, value)))),
      el("div", { class: "buttons" }, save));
  }

  async function begin() {
    await busy("Making and checking a backup…", LOST, async () => {
      const { data } = await change("POST", "backups", undefined, { name: once, seconds: SECONDS_TO_MAKE });
      once = newName();
      announce(`Backup made: ${size(data.bytes)}.`);
      // The page may still say that there is none.
      shop.changedHere();
      shop.loadFigures(loading.signal).catch(() => {});
    });
    return load();
  }

  const fetchFile = (name) => busy("Downloading…", CUT, async (progress) => {
    const shown = (done, all) => Object.assign(progress, { max: all, value: done });
    if (await download(`backups/${encodeURIComponent(name)}`, name, { signal: loading.signal, shown })) announce(`${name} is saved.`);
  });

  async function busy(text, lost, act) {
    if (isBusy) return;
    isBusy = true;
    setText(notice, "");
    const pressed = document.activeElement;
    const progress = el("progress", {});
    work.replaceChildren(el("label", { class: "field" }, text, progress));
    for (const each of root.querySelectorAll("button")) each.disabled = true;
    try {
      await act(progress);
    } catch (failure) {
      if (failure.name !== "AbortError") setText(notice, failure instanceof NoAnswer ? lost : failure.code === "backup_failed" || failure.code === "server_busy" ? failure.message : describe(failure));
    } finally {
      isBusy = false;
      work.replaceChildren();
      for (const each of root.querySelectorAll("button")) each.disabled = false;
      refocus(pressed?.isConnected ? pressed : root.querySelector("h1"));
    }
  }

  return { title: "Backups", update: load, changed() {}, dispose: () => loading.abort() };
}

function size(bytes) {
  return bytes < 1e6 ? `${count(Math.ceil(bytes / 1e3))} kB` : `${count(Math.round(bytes / 1e5) / 10)} MB`;
}
