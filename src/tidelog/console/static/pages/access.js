// Who may do what in the cluster: access rules, users, quotas.
import { h, replace, card, badge, plain, refusal, field } from "../dom.js";
import { atLeast, change, get, roleOn } from "../api.js";
import { whole } from "../format.js";
import { table, nothing } from "../table.js";
import { ask, askTyped } from "../dialog.js";
import { t } from "../words.js";

const OPERATIONS = ["all", "read", "write", "create", "delete", "alter", "describe", "describe_configs", "alter_configs", "cluster_action", "idempotent_write"];
const RESOURCES = ["topic", "group", "cluster", "transactional_id", "user", "delegation_token"];
const QUOTAS = ["producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate", "connection_creation_rate"];

export async function show(view) {
  const admin = atLeast(roleOn(view.cluster), "admin");
  const adder = (action) => (admin ? h("button", { type: "button", onclick: () => action(view).then((done) => done && view.look()) }, t("Add")) : null);
  const remover = (action) => (row) => (admin ? h("button", { type: "button", onclick: () => action(view, row).then((done) => done && view.look()) }, t("Remove")) : null);
  const [acls, users, quotas] = [0, 0, 0].map(() => h("div", {}));
  view.root.append(h("div", { class: "head" }, h("div", { class: "grow" }, h("h1", {}, t("Access")))),
    card(t("Access rules"), acls, adder(addRule)),
    h("div", { class: "columns" }, card(t("Users"), users, adder(setUser)), card(t("Quotas"), quotas, adder(setQuota))));
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
      { name: "", cell: remover(removeRule) },
    ], rows, { none: nothing(t("There are no access rules.")) })),
    part(users, "users", (rows) => table([
      { name: "User", class: "name", cell: (row) => plain(row.name) },
      { name: "Logs in by", cell: (row) => row.problem ?? row.mechanisms.join(", ") },
      { name: "", cell: remover(removeUser) },
    ], rows, { none: nothing(t("There are no SCRAM users.")) })),
    part(quotas, "quotas", (rows) => table([
      { name: "For", class: "name", cell: (row) => plain(Object.entries(row.entity).map(([kind, name]) => `${kind} ${name ?? t("default")}`).join(", ")) },
      { name: "Quotas", cell: (row) => Object.entries(row.quotas).map(([name, value]) => h("div", {}, h("code", {}, name), " ", whole(value))) },
      { name: "", cell: remover(removeQuotas) },
    ], rows, { none: nothing(t("There are no quotas.")) })),
  ]));
}

const choice = (values) => h("select", {}, values.map((each) => h("option", { value: each }, each)));
const text = (placeholder = "") => h("input", { class: "wide mono", autocomplete: "off", spellcheck: "false", placeholder });

function addRule(view) {
  const [principal, name, host] = [text("User:alice"), text("orders"), text("*")];
  const [permission, operation, resource, pattern] = [["allow", "deny"], OPERATIONS, RESOURCES, ["literal", "prefixed"]].map(choice);
  return ask({
    title: t("Add an access rule"), action: t("Add"),
    content: [field(t("Principal"), principal), h("div", { class: "row" }, field(t("Permission"), permission), field(t("Operation"), operation)),
      h("div", { class: "row" }, field(t("Resource"), resource), field(t("Pattern"), pattern)), field(t("Name"), name), field(t("Host"), host)],
    ready: () => principal.value.includes(":") && name.value !== "",
    act: () => change("POST", view.path("acls"), {
      principal: principal.value.trim(), permission: permission.value, operation: operation.value, resource: resource.value, pattern: pattern.value,
      name: name.value.trim(), host: host.value.trim() || "*",
    }).then(() => null),
  });
}

function removeRule(view, row) {
  return ask({
    title: t("Remove the access rule"), action: t("Remove"), danger: true,
    content: h("p", {}, plain(`${row.principal}: ${row.permission} ${row.operation}, ${row.resource} ${row.pattern} ${row.name}, ${row.host}`)),
    act: () => change("DELETE", view.path("acls"), row).then(() => null),
  });
}

function setUser(view) {
  const name = text();
  const password = h("input", { class: "wide", type: "password", autocomplete: "new-password" });
  const mechanism = choice(["SCRAM-SHA-512", "SCRAM-SHA-256"]);
  return ask({
    title: t("Add a user, or change a password"), action: t("Save"),
    content: [field(t("User"), name), field(t("Password"), password), field(t("Logs in by"), mechanism)],
    ready: () => name.value !== "" && password.value !== "",
    act: () => change("PUT", view.path("users"), { name: name.value, password: password.value, mechanism: mechanism.value }).then(() => null),
  });
}

const removeUser = (view, row) => askTyped({
  title: t("Remove the user"), text: t("Nobody can log in by this name any more."), name: row.name, action: t("Remove"),
  act: () => change("DELETE", view.path("users", row.name), { name: row.name }).then(() => null),
});

function setQuota(view) {
  const kind = choice(["user", "client-id", "ip"]);
  const name = text(t("default"));
  const quota = choice(QUOTAS);
  const value = h("input", { type: "number", min: 0, step: "any" });
  return ask({
    title: t("Set a quota"), action: t("Save"),
    content: [h("div", { class: "row" }, field(t("For"), kind), field(t("Name"), name)), h("div", { class: "row" }, field(t("Quota"), quota), field(t("Value"), value))],
    ready: () => value.value !== "",
    act: () => change("PUT", view.path("quotas"), { entity: { [kind.value]: name.value.trim() || null }, quotas: { [quota.value]: Number(value.value) } }).then(() => null),
  });
}

function removeQuotas(view, row) {
  return ask({
    title: t("Take the quotas away"), action: t("Remove"), danger: true,
    content: h("p", {}, plain(Object.entries(row.entity).map(([kind, name]) => `${kind} ${name ?? t("default")}`).join(", "))),
    act: () => change("PUT", view.path("quotas"), { entity: row.entity, quotas: Object.fromEntries(Object.keys(row.quotas).map((each) => [each, null])) }).then(() => null),
  });
}
