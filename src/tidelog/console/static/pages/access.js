// Who may do what in the cluster: access rules and what follows from them, users, quotas, delegation tokens.
import { h, replace, card, badge, plain, refusal, field } from "../dom.js";
import { atLeast, change, get, roleOn } from "../api.js";
import { moment, whole } from "../format.js";
import { table, nothing } from "../table.js";
import { ask, askTyped } from "../dialog.js";
import { t } from "../words.js";

const OPERATIONS = ["all", "read", "write", "create", "delete", "alter", "describe", "describe_configs", "alter_configs", "cluster_action", "idempotent_write", "create_tokens", "describe_tokens", "two_phase_commit"];
const RESOURCES = ["topic", "group", "cluster", "transactional_id", "user", "delegation_token"];
const QUOTAS = ["producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate", "connection_creation_rate"];

// What brokers answer that have something switched off.
const OFF = {
  SECURITY_DISABLED: ["ACLs are disabled on the brokers", "Set authorizer.class.name on the brokers to enable ACLs."],
  DELEGATION_TOKEN_AUTH_DISABLED: ["Delegation tokens are disabled on the brokers", "Set the same delegation.token.secret.key on all brokers to enable them."],
  DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: ["Delegation tokens require an authenticated connection", "Configure the console to log in to the cluster without a delegation token."],
};

export async function show(view) {
  const admin = atLeast(roleOn(view.cluster), "admin");
  const adder = (action) => (admin ? h("button", { type: "button", onclick: () => action(view).then((done) => done && view.look()) }, t("Add")) : null);
  const remover = (action) => (row) => (admin ? h("button", { type: "button", onclick: () => action(view, row).then((done) => done && view.look()) }, t("Remove")) : null);
  const [acls, users, quotas, tokens] = [0, 0, 0, 0].map(() => h("div", {}));
  view.root.append(h("div", { class: "head" }, h("div", { class: "grow" }, h("h1", {}, t("Access")))),
    card(t("ACLs"), acls, h("div", { class: "row" }, h("button", { type: "button", onclick: () => explain(view) }, t("Explain")), adder(addRule))),
    h("div", { class: "columns" }, card(t("Users"), users, adder(setUser)), card(t("Quotas"), quotas, adder(setQuota))),
    card(t("Delegation tokens"), tokens, adder(makeToken)));
  const part = async (element, path, draw) => {
    try { replace(element, draw(await get(view.path(path), {}, view.signal))); } catch (error) {
      if (view.signal.aborted) return;
      const off = OFF[error.code];
      replace(element, off ? nothing(t(off[0]), t(off[1])) : h("div", { class: "body" }, refusal(error)));
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
    ], rows, { none: nothing(t("No ACLs")) })),
    part(users, "users", (rows) => table([
      { name: "User", class: "name", cell: (row) => plain(row.name) },
      { name: "Mechanism", cell: (row) => row.problem ?? row.mechanisms.join(", ") },
      { name: "", cell: remover(removeUser) },
    ], rows, { none: nothing(t("No SCRAM users")) })),
    part(quotas, "quotas", (rows) => table([
      { name: "Entity", class: "name", cell: (row) => plain(Object.entries(row.entity).map(([kind, name]) => `${kind} ${name ?? t("default")}`).join(", ")) },
      { name: "Quotas", cell: (row) => Object.entries(row.quotas).map(([name, value]) => h("div", {}, h("code", {}, name), " ", whole(value))) },
      { name: "", cell: remover(removeQuotas) },
    ], rows, { none: nothing(t("No quotas")) })),
    part(tokens, "delegation-tokens", (rows) => table([
      { name: "Token", class: "name mono", cell: (row) => plain(row.token_id) },
      { name: "Owner", class: "short", cell: (row) => [plain(row.owner), row.requester === row.owner ? null : h("div", { class: "muted small" }, plain(t("requested by {user}", { user: row.requester })))] },
      { name: "Renewers", class: "short", cell: (row) => plain(row.renewers.join(", ") || "–") },
      { name: "Expires", cell: (row) => moment(row.expires_ms).slice(0, 16) },
      { name: "Latest expiry", cell: (row) => moment(row.max_ms).slice(0, 16) },
      { name: "", cell: (row) => (admin ? h("button", { type: "button", onclick: () => renewToken(view, row).then((done) => done && view.look()) }, t("Renew")) : null) },
      { name: "", cell: (row) => (admin ? h("button", { type: "button", onclick: () => expireToken(view, row).then((done) => done && view.look()) }, t("Expire")) : null) },
    ], rows, { none: nothing(t("No delegation tokens")) })),
  ]));
}

const choice = (values) => h("select", {}, values.map((each) => h("option", { value: each }, each)));
const text = (placeholder = "") => h("input", { class: "wide mono", autocomplete: "off", spellcheck: "false", placeholder });

function addRule(view) {
  const [principal, name, host] = [text("User:alice"), text("orders"), text("*")];
  const [permission, operation, resource, pattern] = [["allow", "deny"], OPERATIONS, RESOURCES, ["literal", "prefixed"]].map(choice);
  return ask({
    title: t("Add ACL"), action: t("Add"),
    content: [field(t("Principal"), principal), h("div", { class: "row" }, field(t("Permission"), permission), field(t("Operation"), operation)),
      h("div", { class: "row" }, field(t("Resource"), resource), field(t("Pattern"), pattern)), field(t("Name"), name), field(t("Host"), host)],
    ready: () => principal.value.includes(":") && name.value !== "",
    act: () => change("POST", view.path("acls"), {
      principal: principal.value.trim(), permission: permission.value, operation: operation.value, resource: resource.value, pattern: pattern.value,
      name: name.value.trim(), host: host.value.trim() || "*",
    }).then(() => null),
  });
}

const EFFECTS = { denies: "bad", allows: "good" };
const REASONS = {
  "super user": "super users are always allowed",
  "open without rules": "no ACL for this resource, and allow.everyone.if.no.acl.found is true",
  "no rule": "no ACL for this resource",
  "not allowed": "this resource has ACLs, but none allows this",
};

/** May somebody do something: the answer, and every rule that covers the resource with what it says. */
function explain(view) {
  const [principal, name, host] = [text("User:alice"), text("orders"), text(t("an address in no ACL"))];
  const resource = choice(RESOURCES);
  const operation = h("select", {}, h("option", { value: "" }, t("all operations")), OPERATIONS.slice(1).map((each) => h("option", { value: each }, each)));
  const found = h("div", { class: "stack" });
  const arrange = () => { name.disabled = resource.value === "cluster"; };
  resource.addEventListener("change", arrange);
  return ask({
    title: t("Explain access"), action: t("Explain"), large: true, stays: true,
    content: [h("div", { class: "row" }, field(t("Principal"), principal), field(t("Client address"), host)),
      h("div", { class: "row" }, field(t("Operation"), operation), field(t("Resource"), resource), field(t("Name"), name)), found],
    ready: () => principal.value.includes(":") && (resource.value === "cluster" || name.value !== ""),
    act: async () => {
      const told = await get(view.path("acls", "explain"), {
        principal: principal.value.trim(), host: host.value.trim(), operation: operation.value, resource: resource.value, name: resource.value === "cluster" ? "" : name.value,
      }, view.signal);
      replace(found, explained(told));
    },
  });
}

function explained({ answers, super_users: superUsers, open_without_rules: open }) {
  const ruleText = (rule) => plain(`${rule.principal}: ${t(rule.permission)} ${rule.operation}, ${rule.resource} ${rule.pattern} ${rule.name}, ${rule.host}`);
  const because = (row) => (row.reason === "rule" ? row.rules.filter((each) => each.decides).map((each) => ruleText(each.rule)) : t(REASONS[row.reason]));
  const weighed = answers.length === 1 ? answers[0].rules : [];
  return [
    table([
      { name: "Operation", cell: (row) => row.operation },
      { name: "", cell: (row) => badge(t(row.allowed ? "allowed" : "denied"), row.allowed ? "good" : "bad") },
      { name: "Reason", class: "name", cell: because },
    ], answers, { label: t("Result") }),
    weighed.length ? table([
      { name: "ACLs for this resource", class: "name", cell: (row) => ruleText(row.rule) },
      { name: "", cell: (row) => badge(t(row.effect), EFFECTS[row.effect] ?? "") },
      { name: "", cell: (row) => (row.decides ? badge(t("decides"), "info") : null) },
    ], weighed) : null,
    superUsers === null || open === null
      ? h("p", { class: "muted small" }, t("The brokers do not report super.users and allow.everyone.if.no.acl.found. This result is based on the ACLs only.")) : null,
  ];
}

function removeRule(view, row) {
  return ask({
    title: t("Remove ACL"), action: t("Remove"), danger: true,
    content: h("p", {}, plain(`${row.principal}: ${row.permission} ${row.operation}, ${row.resource} ${row.pattern} ${row.name}, ${row.host}`)),
    act: () => change("DELETE", view.path("acls"), row).then(() => null),
  });
}

function setUser(view) {
  const name = text();
  const password = h("input", { class: "wide", type: "password", autocomplete: "new-password" });
  const mechanism = choice(["SCRAM-SHA-512", "SCRAM-SHA-256"]);
  return ask({
    title: t("Add user or change password"), action: t("Save"),
    content: [field(t("User"), name), field(t("Password"), password), field(t("Mechanism"), mechanism)],
    ready: () => name.value !== "" && password.value !== "",
    act: () => change("PUT", view.path("users"), { name: name.value, password: password.value, mechanism: mechanism.value }).then(() => null),
  });
}

const removeUser = (view, row) => askTyped({
  title: t("Remove user"), text: t("This user will no longer be able to log in."), name: row.name, action: t("Remove"),
  act: () => change("DELETE", view.path("users", row.name), { name: row.name }).then(() => null),
});

function setQuota(view) {
  const kind = choice(["user", "client-id", "ip"]);
  const name = text(t("default"));
  const quota = choice(QUOTAS);
  const value = h("input", { type: "number", min: 0, step: "any" });
  return ask({
    title: t("Set quota"), action: t("Save"),
    content: [h("div", { class: "row" }, field(t("Entity"), kind), field(t("Name"), name)), h("div", { class: "row" }, field(t("Quota"), quota), field(t("Value"), value))],
    ready: () => value.value !== "",
    act: () => change("PUT", view.path("quotas"), { entity: { [kind.value]: name.value.trim() || null }, quotas: { [quota.value]: Number(value.value) } }).then(() => null),
  });
}

function removeQuotas(view, row) {
  return ask({
    title: t("Remove quotas"), action: t("Remove"), danger: true,
    content: h("p", {}, plain(Object.entries(row.entity).map(([kind, name]) => `${kind} ${name ?? t("default")}`).join(", "))),
    act: () => change("PUT", view.path("quotas"), { entity: row.entity, quotas: Object.fromEntries(Object.keys(row.quotas).map((each) => [each, null])) }).then(() => null),
  });
}

const DAY_MS = 86_400_000;

function makeToken(view) {
  const [owner, renewers] = [text(t("the console's own user")), text("User:alice, User:bob")];
  const days = h("input", { type: "number", min: 0.001, step: "any", placeholder: t("broker default") });
  const shown = h("div", { class: "stack" });
  return ask({
    title: t("Create delegation token"), action: t("Create"),
    content: [h("p", { class: "muted" }, t("Anyone who has this token can authenticate as its owner until it expires.")), field(t("Owner"), owner), field(t("Renewers"), renewers),
      field(t("Maximum lifetime (days)"), days), shown],
    act: async () => {
      const { token, hmac } = await change("POST", view.path("delegation-tokens"), {
        owner: owner.value.trim() || null, renewers: renewers.value.split(",").map((each) => each.trim()).filter(Boolean),
        max_lifetime_ms: days.value ? Math.round(Number(days.value) * DAY_MS) : null,
      });
      replace(shown, field(t("User name"), h("input", { class: "wide mono", readonly: true, value: token.token_id })),
        field(t("Password"), h("input", { class: "wide mono", readonly: true, value: hmac })));
      return t("Copy the password now: it is shown only once. Clients authenticate with SCRAM and sasl.tokenauth=true.");
    },
  });
}

function renewToken(view, row) {
  return ask({
    title: t("Renew token"), action: t("Renew"), content: h("p", { class: "mono" }, plain(row.token_id)),
    act: async () => t("Expires at {time}", { time: moment((await change("POST", view.path("delegation-tokens", row.token_id, "renew"))).expires_ms).slice(0, 16) }),
  });
}

function expireToken(view, row) {
  return ask({
    title: t("Expire token"), action: t("Expire"), danger: true,
    content: [h("p", { class: "mono" }, plain(row.token_id)), h("p", {}, t("Clients can no longer authenticate with this token. Existing sessions continue until they end."))],
    act: () => change("DELETE", view.path("delegation-tokens", row.token_id)).then(() => null),
  });
}
