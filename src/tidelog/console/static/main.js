// The shell: who we are, which cluster, which page; and the stream that says when to look again.
import { h, replace, refusal, place, plain, visible } from "./dom.js";
import { at, begin, logOut, Refused, session } from "./api.js";
import { chooseLanguage, language, LANGUAGES, t } from "./words.js";
import { clock } from "./format.js";
import { paint } from "./theme.js";
import { showLogin } from "./pages/login.js";

const PAGES = {
  overview: ["Overview", () => import("./pages/overview.js")],
  topology: ["Topology", () => import("./pages/topology.js")],
  topics: ["Topics", () => import("./pages/topics.js")],
  groups: ["Groups", () => import("./pages/groups.js")],
  spark: ["Spark", () => import("./pages/spark.js")],
  brokers: ["Brokers", () => import("./pages/brokers.js")],
  clients: ["Clients", () => import("./pages/clients.js")],
  transactions: ["Transactions", () => import("./pages/transactions.js")],
  access: ["Access", () => import("./pages/access.js")],
  audit: ["Audit", () => import("./pages/audit.js")],
  tokens: ["Tokens", () => import("./pages/tokens.js")],
};
const GROUPS = [["Cluster", ["overview", "topology"]], ["Data", ["topics", "groups", "spark"]],
  ["Operations", ["brokers", "clients", "transactions", "access", "audit", "tokens"]]];
/** Adds the pages of other packages, which the session names; their scripts come from the console itself. */
function addPages() {
  for (const { name, title, script } of session.pages) {
    if (Object.hasOwn(PAGES, name)) continue;
    PAGES[name] = [title, () => import(script)];
    GROUPS[1][1].push(name);
  }
}
/** Whether a page is there at all: tokens are only where assistants log in. */
const isThere = (page) => page !== "tokens" || session.tokens;
const AGAIN_MS = 3_000;

let current = null;
let live = null;
let unanswered = null; // what is said above the page since the console did not answer

class View {
  /** One page on the screen; `signal` ends what it has begun when another takes its place. */
  constructor(root, cluster, parts) {
    this.root = root;
    this.cluster = cluster;
    this.parts = parts;
    this.ended = new AbortController();
    this.listeners = [];
    this.failed = false;
    this.said = null;
  }

  get signal() { return this.ended.signal; }

  /** Call `listener` now and after each look at the cluster; a failure is shown, the page stays. */
  onLook(listener) { this.listeners.push(listener); }

  path(...parts) { return at(this.cluster, ...parts); }

  /** Whether all of it could be read. */
  async look() {
    let isWhole = true;
    for (const each of this.listeners) {
      try {
        await each();
        this.seen = true;
        this.say(null);
      } catch (error) {
        isWhole = false;
        if (this.signal.aborted) break;
        if (!this.seen) this.say(error);
      }
    }
    return isWhole;
  }

  /** Say why there is nothing to see yet, in the place of parts that would be empty. */
  say(error) {
    this.said?.remove();
    this.said = error ? refusal(error) : null;
    this.root.classList.toggle("unread", Boolean(error));
    if (error) this.root.append(this.said);
  }
}

function parse() {
  const parts = location.hash.replace(/^#\/?/, "").split("/").filter(Boolean).map((part) => {
    try { return decodeURIComponent(part); } catch { return part; }
  });
  const known = session.clusters.map((each) => each.name);
  const cluster = known.includes(parts[0]) ? parts[0] : known[0];
  const page = parts[1] in PAGES && Object.hasOwn(PAGES, parts[1]) ? parts[1] : "overview";
  return { cluster, page, parts: parts.slice(2) };
}

async function show() {
  current?.ended.abort();
  if (session.login && session.user === null) {
    live?.close();
    live = null;
    await showLogin(show);
    return;
  }
  addPages();
  const { cluster, page, parts } = parse();
  if (!cluster) {
    replace(document.body, h("div", { class: "login" }, h("div", { class: "card" }, h("div", { class: "body stack" },
      h("p", {}, t("{user} has no access to any cluster. Ask the administrator of this console for a role.", { user: session.user })), logOutButton()))));
    return;
  }
  const root = frame(cluster, page);
  const view = new View(root, cluster, parts);
  current = view;
  follow(cluster);
  document.title = visible(`${parts[0] ?? t(PAGES[page][0])} · ${cluster} · Tidelog`);
  replace(root, h("div", { class: "waiting" }, t("Loading…")));
  try {
    const module = await PAGES[page][1]();
    if (view.signal.aborted) return;
    replace(root);
    await module.show(view);
    await view.look();
  } catch (error) {
    if (view.signal.aborted) return;
    view.failed = true;
    view.isAway = error.code === "UNREACHABLE";
    replace(root, h("div", { class: "head" }, h("div", { class: "grow" },
      parts.length ? h("span", { class: "crumb" }, h("a", { href: place(cluster, page) }, t(PAGES[page][0]))) : null,
      h("h1", {}, parts.length ? plain(parts[0]) : t(PAGES[page][0])))), refusal(error));
  }
}

/** The frame around a page; made anew only where the cluster or language has changed. */
function frame(cluster, page) {
  let shell = document.querySelector(".shell");
  if (shell?.dataset.frame !== `${cluster} ${language()}`) {
    shell = h("div", { class: "shell" }, side(cluster),
      h("main", { class: "main", id: "main", tabindex: "-1" },
        h("div", { class: `band ${session.clusters.find((each) => each.name === cluster).colour}` }),
        h("div", { id: "notice", role: "status" }), h("div", { id: "failure" }), h("div", { class: "page" })));
    shell.dataset.frame = `${cluster} ${language()}`;
    replace(document.body, h("a", { class: "skip", href: "#main", onclick: skip }, t("Skip to content")), shell);
  }
  for (const link of shell.querySelectorAll(".nav a")) {
    if (link.dataset.page === page) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  replace(shell.querySelector("#failure"));
  const old = shell.querySelector(".page");
  const root = h("div", { class: "page" });
  old.replaceWith(root);
  return root;
}

function skip(event) {
  event.preventDefault();
  document.getElementById("main").focus();
}

function side(cluster) {
  const clusters = h("select", {
    "aria-label": t("Cluster"),
    onchange: (event) => { location.hash = place(event.target.value, "overview"); },
  }, session.clusters.map((each) => h("option", { value: each.name, selected: each.name === cluster }, each.name)));
  return h("nav", { class: "side", "aria-label": t("Pages") },
    h("a", { class: "brand", href: place(cluster, "overview") }, h("img", { src: "icon.svg", alt: "" }), "Tidelog"),
    clusters,
    h("div", { class: "nav" }, GROUPS.map(([name, pages]) => [
      h("div", { class: "group" }, t(name)),
      pages.filter(isThere).map((page) => h("a", { href: place(cluster, page), "data-page": page }, t(PAGES[page][0]))),
    ])),
    h("div", { class: "end" },
      session.read_only ? h("span", { class: "badge info" }, t("read-only")) : null,
      session.login ? h("div", { class: "row" }, h("span", { class: "grow" }, session.user), logOutButton()) : null,
      h("div", { class: "row" },
        h("select", {
          "aria-label": t("Language"),
          onchange: (event) => { chooseLanguage(event.target.value); show(); },
        }, Object.entries(LANGUAGES).map(([code, name]) => h("option", { value: code, selected: code === language() }, name))),
        h("select", {
          "aria-label": t("Theme"),
          onchange: (event) => { localStorage.setItem("theme", event.target.value); paint(); },
        }, ["system", "light", "dark"].map((each) =>
          h("option", { value: each, selected: each === (localStorage.getItem("theme") ?? "system") }, t(each))))),
      h("span", { class: "muted small" }, `Tidelog ${session.version}`)));
}

function logOutButton() {
  return h("button", { type: "button", onclick: async () => { if (!await logOut()) await show(); } }, t("Log out"));
}

/** Hear of each look at the cluster; the browser connects again by itself, unless something else was answered. */
function follow(cluster) {
  if (live?.cluster === cluster) return;
  live?.close();
  const stream = new EventSource(`/api${at(cluster, "live")}`);
  stream.cluster = cluster;
  stream.addEventListener("look", async (event) => {
    const state = JSON.parse(event.data);
    session.history_fails = state.history_fails;
    if (state.problem) notice(["bad", t("The cluster has not responded since {time}: {problem}", { time: clock(state.since), problem: state.problem })]);
    else notice(state.history_fails ? ["bad", t("The console cannot access its history, so charts and events are incomplete. The overview page shows the reason.")] : null);
    const said = unanswered;
    if (current?.failed && !state.problem && current.isAway) show();
    else if (await current?.look()) said?.remove();  // what was asked before works again
  });
  stream.addEventListener("error", () => {
    notice(["bad", t("The console is unreachable. Retrying…")]);
    if (stream !== live || stream.readyState !== EventSource.CLOSED) return;
    live = null;
    setTimeout(again, AGAIN_MS);
  });
  live = stream;
}

/** Follow the cluster again, or log in again, unless the page does so already or nobody sees it. */
async function again() {
  const isOver = () => live || document.hidden || !current || current.signal.aborted;
  if (isOver()) return;
  try {
    await begin();
  } catch {
    setTimeout(again, AGAIN_MS);
    return;
  }
  if (isOver()) return;
  if (session.login && session.user === null) await show();
  else follow(current.cluster);
}

// A browser opens few connections to one address: pages that nobody sees give theirs back.
document.addEventListener("visibilitychange", () => {
  if (document.hidden) {
    live?.close();
    live = null;
  } else if (current && !current.signal.aborted) follow(current.cluster);
});

function notice(said) {
  const element = document.getElementById("notice");
  if (element) replace(element, said ? h("div", { class: `notice ${said[0]}` }, plain(said[1])) : null);
}

// What a click or a choice has begun may fail when nobody waits for it any more. A page that was left has given its
// questions up; what the console refused, or could not be asked, is said above the page; anything else is a bug of ours.
window.addEventListener("unhandledrejection", (event) => {
  const { reason } = event;
  if (reason instanceof Refused) {
    const element = document.getElementById("failure");
    if (element && reason.code !== "LOGIN_NEEDED") {
      const said = refusal(reason);
      unanswered = reason.code === "AWAY" ? said : null;
      replace(element, said);
    }
  } else if (reason?.name !== "AbortError") return;
  event.preventDefault();
});

chooseLanguage(language());
window.addEventListener("hashchange", show);
window.addEventListener("login-needed", async () => { await begin(); await show(); });
window.addEventListener("keydown", (event) => {
  // A slash goes to the search of the page, as in many others.
  if (event.key === "/" && !event.ctrlKey && !event.metaKey && !/^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName)) {
    const search = document.querySelector("input[type=search]");
    if (search) { event.preventDefault(); search.focus(); }
  }
});

try {
  await begin();
  await show();
} catch (error) {
  replace(document.body, h("div", { class: "login" }, refusal(error)));
}
