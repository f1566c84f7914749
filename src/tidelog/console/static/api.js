// The way to the API: reads, changes with the session's token, streams.
import { t } from "./words.js";

/** Something that the console refused; `code` is a word for programs. */
export class Refused extends Error {
  constructor(message, code, status) {
    super(message);
    this.code = code;
    this.status = status;
  }
}

export const session = {
  token: "", user: null, login: false, passwords: false, provider: null, tokens: false, pages: [], clusters: [], read_only: false, version: "", history_fails: false,
};

/** Wait for the console; where it cannot be reached that is said in words of ours. What was given up stays an `AbortError`. */
async function reached(waited, signal) {
  try {
    return await waited;
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Refused(t("The console is unreachable."), "AWAY", 0);
  }
}

const asked = (url, options) => reached(fetch(url, options), options.signal);

/** What the console says; an answer that is cut, or that a proxy gives in its place, is none. */
async function answered(answer) {
  const body = await answer.json().catch((error) => {
    if (error.name === "AbortError") throw error;
    const said = answer.ok ? t("The console is unreachable.") : t("The console responded with status {status}.", { status: answer.status });
    throw new Refused(said, "AWAY", answer.status);
  });
  if (!answer.ok) {
    if (answer.status === 401 && body.code === "LOGIN_NEEDED") window.dispatchEvent(new Event("login-needed"));
    throw new Refused(body.error, body.code, answer.status);
  }
  return body;
}

/** The address of something; values that are empty are left out. */
export function address(path, query = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== "" && value !== null && value !== undefined && value !== false);
  const text = new URLSearchParams(given).toString();
  return `/api${path}${text ? `?${text}` : ""}`;
}

export async function get(path, query = {}, signal = undefined) {
  return answered(await asked(address(path, query), { signal, headers: { Accept: "application/json" } }));
}

/** Throw the refusal of something that is then downloaded, for a browser shows nobody what a failed download says. */
export async function refuseFirst(path, query, patience_ms = 3_000) {
  const hangUp = new AbortController();
  const timer = setTimeout(() => hangUp.abort(), patience_ms);
  try {
    const answer = await asked(address(path, query), { signal: hangUp.signal });
    if (!answer.ok) await answered(answer);
  } catch (error) {
    if (!hangUp.signal.aborted) throw error;
  } finally {
    clearTimeout(timer);
    hangUp.abort();
  }
}

/** A file that is made before it is sent, as a whole; why there is none is thrown. */
export async function file(path, query, signal) {
  const answer = await asked(address(path, query), { signal });
  if (!answer.ok) await answered(answer);
  return reached(answer.blob(), signal);
}

export async function change(method, path, body = {}) {
  return answered(await asked(`/api${path}`, {
    method,
    headers: { "Content-Type": "application/json", "X-Console-Token": session.token },
    body: JSON.stringify(body),
  }));
}

/** Who we are; a new session begins where there is none. */
export async function begin() {
  Object.assign(session, await get("/session"));
  return session;
}

export async function logIn(user, password) {
  Object.assign(session, await change("POST", "/session", { user, password }));
}

/** Go to the login provider; it sends the browser back to this place of the page. */
export async function logInElsewhere() {
  const { url } = await change("POST", "/session/provider", { place: location.hash });
  location.assign(url);
}

/** End the session; whether the browser is on its way to the provider, which ends its own. */
export async function logOut() {
  const { url } = await change("DELETE", "/session");
  if (url) location.assign(url);
  else await begin();
  return Boolean(url);
}

/** The API's path of a cluster, and of what is below it. */
export const at = (cluster, ...parts) => `/clusters/${[cluster, ...parts].map((part) => encodeURIComponent(part)).join("/")}`;

const ROLES = ["none", "viewer", "operator", "admin"];

/** Whether a role is at least another. */
export const atLeast = (role, needed) => ROLES.indexOf(role) >= ROLES.indexOf(needed);

/** Our role on a cluster. */
export const roleOn = (cluster) => session.clusters.find((each) => each.name === cluster)?.role ?? "none";
