// Tokens by which assistants log in (Model Context Protocol): made, shown once, revoked.
import { h, replace, card, badge, plain, field } from "../dom.js";
import { change, get } from "../api.js";
import { moment } from "../format.js";
import { table, nothing } from "../table.js";
import { ask } from "../dialog.js";
import { t } from "../words.js";

export async function show(view) {
  const rows = h("div", {});
  const again = (done) => done && view.look();
  view.root.append(h("div", { class: "head" }, h("div", { class: "grow" }, h("h1", {}, t("Tokens")),
    h("p", { class: "muted small" }, t("AI assistants use these tokens to authenticate at {url}.", { url: `${location.origin}/mcp` }))),
  h("button", { type: "button", class: "main-action", onclick: () => make().then(again) }, t("Create token"))), card(null, rows));
  view.onLook(async () => {
    const tokens = await get("/tokens", {}, view.signal);
    replace(rows, table([
      { name: "Label", class: "name", cell: (row) => plain(row.label) },
      { name: "User", cell: (row) => plain(`${row.login}:${row.user}`) },
      { name: "Rights", cell: (row) => (row.read_only ? badge(t("read-only"), "info") : t("same as the user")) },
      { name: "Created", class: "still mono", cell: (row) => moment(row.made_at_ms).slice(0, 16) },
      { name: "Expires", class: "still mono", cell: (row) => moment(row.ends_at_ms).slice(0, 16) },
      { name: "", cell: (row) => h("button", { type: "button", onclick: () => revoke(row).then(again) }, t("Revoke")) },
    ], tokens, { none: nothing(t("No tokens"), t("Create a token for each assistant, and revoke it when it is no longer needed.")) }));
  });
}

function make() {
  const label = h("input", { class: "wide", required: true, maxlength: "100", autocomplete: "off" });
  const days = h("input", { type: "number", min: "1", max: "366", value: "7", required: true });
  const readOnly = h("input", { type: "checkbox", checked: true });
  return ask({
    title: t("Create token"), action: t("Create token"),
    content: [field(t("Label"), label), field(t("Days"), days),
      h("label", { class: "row" }, readOnly, t("Read-only"))],
    ready: () => label.value.trim() !== "",
    act: async () => {
      const made = await change("POST", "/tokens", { label: label.value, days: Number(days.value), read_only: readOnly.checked });
      return h("div", { class: "stack" }, h("p", {}, t("Copy the token now: it is shown only once.")),
        h("input", { class: "wide mono", readonly: true, "aria-label": t("Token"), value: made.token, onfocus: (event) => event.target.select() }));
    },
  });
}

function revoke(row) {
  return ask({
    title: t("Revoke token"), action: t("Revoke"), danger: true,
    content: h("p", {}, t("Clients that use {label} lose access immediately.", { label: row.label })),
    act: () => change("DELETE", `/tokens/${encodeURIComponent(row.id)}`).then(() => null),
  });
}
