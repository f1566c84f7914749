// Configs of a topic or a broker: value, where it comes from, what it does; set and taken back.
import { h, replace, card, badge, plain, field } from "./dom.js";
import { change, get } from "./api.js";
import { table, nothing } from "./table.js";
import { ask } from "./dialog.js";
import { t } from "./words.js";

export async function configTable(path, mayChange, signal) {
  const state = { search: "", own: false };
  const body = h("div", {});
  let rows = await get(path, {}, signal);
  const search = h("input", { type: "search", placeholder: t("Search configs ( / )"), "aria-label": t("Search configs"), oninput: (event) => { state.search = event.target.value.toLowerCase(); draw(); } });
  const own = h("label", { class: "tick" }, h("input", { type: "checkbox", onchange: (event) => { state.own = event.target.checked; draw(); } }), t("Overrides only"));
  const draw = () => {
    const shown = rows.filter((row) => (!state.own || row.is_own) && (row.name.includes(state.search) || t(row.display_name).toLowerCase().includes(state.search) || (row.documentation ?? "").toLowerCase().includes(state.search)));
    replace(body, table([
      { name: "Config", class: "name config", cell: (row) => [h("code", {}, row.name), row.is_own ? [" ", badge(t("set"), "info")] : null, h("div", { class: "muted small" }, t(row.display_name))] },
      { name: "Value", class: "name", cell: (row) => h("code", {}, row.is_sensitive ? "••••••" : plain(row.value ?? "–")) },
      { name: "Default", class: "short", cell: (row) => h("code", { class: "muted" }, plain(row.default ?? "–")) },
      { name: "Source", cell: (row) => h("span", { class: "muted small" }, t(row.source)) },
      { name: "", class: "doc", cell: (row) => plain(row.documentation ?? "") },
      { name: "", cell: (row) => (mayChange && !row.is_read_only ? h("button", { type: "button", onclick: () => edit(row) }, t("Change")) : null) },
    ], shown, { none: nothing(t("No configs match")), group: (row) => t(row.group) }));
  };
  async function edit(row) {
    const value = h("input", { class: "wide mono", "aria-required": String(row.is_required), value: row.is_sensitive ? "" : row.value ?? "", autocomplete: "off" });
    const back = h("input", { type: "checkbox" });
    const done = await ask({
      title: t(row.display_name), action: t("Save"),
      content: [h("p", {}, h("code", {}, row.name)), h("p", { class: "muted" }, plain(row.documentation ?? "")),
        field(t("Value"), value), row.is_required ? h("p", { class: "muted small" }, t("A value is required.")) : null,
        row.is_own ? h("label", { class: "tick" }, back, t("Reset to default")) : null],
      act: async () => { rows = await change("PUT", path, { configs: { [row.name]: back.checked ? null : value.value } }); return null; },
    });
    if (done) draw();
  }
  draw();
  return card(null, [h("header", {}, search, h("span", { class: "grow" }), own), body]);
}
