// Who may do what in the cluster: access rules, users, quotas.
import { h, replace, card, badge, plain, refusal } from "../dom.js";
import { get } from "../api.js";
import { whole } from "../format.js";
import { table, nothing } from "../table.js";
import { t } from "../words.js";

export async function show(view) {
  const [acls, users, quotas] = [0, 0, 0].map(() => h("div", {}));
  view.root.append(h("div", { class: "head" }, h("div", { class: "grow" }, h("h1", {}, t("Access")))),
    card(t("Access rules"), acls), h("div", { class: "columns" }, card(t("Users"), users), card(t("Quotas"), quotas)));
  const part = async (element, path, draw) => {
    try { replace(element, draw(await get(view.path(path), {}, view.signal))); } catch (error) {
      if (view.signal.aborted) return;
      replace(element, error.code === "SECURITY_DISABLED" ? nothing(t("The brokers check no access rules."), t("Set authorizer.class.name on them.")) : h("div", { class: "body" }, refusal(error)));
    }
  };
  view.onLook(() => Promise.all([
    part(acls, "acls", (rows) => table([
      { name: "Principal", class: "name", cell: (row) => plain(row.principal) },
      { name: "", cell: (row) => badge(t(row.permission), row.permission === "deny" ? "bad" : "good") },
      { name: "Operation", cell: (row) => row.operation },
      { name: "Resource", cell: (row) => row.resource },
      { name: "Name", class: "name mono", cell: (row) => plain(row.name) },
      { name: "Pattern", cell: (row) => row.pattern },
      { name: "Host", class: "mono", cell: (row) => plain(row.host) },
    ], rows, { none: nothing(t("There are no access rules.")) })),
    part(users, "users", (rows) => table([
      { name: "User", class: "name", cell: (row) => plain(row.name) },
      { name: "Logs in by", cell: (row) => row.problem ?? row.mechanisms.join(", ") },
    ], rows, { none: nothing(t("There are no SCRAM users.")) })),
    part(quotas, "quotas", (rows) => table([
      { name: "For", class: "name", cell: (row) => plain(Object.entries(row.entity).map(([kind, name]) => `${kind} ${name ?? t("default")}`).join(", ")) },
      { name: "Quotas", cell: (row) => Object.entries(row.quotas).map(([name, value]) => h("div", {}, h("code", {}, name), " ", whole(value))) },
    ], rows, { none: nothing(t("There are no quotas.")) })),
  ]));
}
