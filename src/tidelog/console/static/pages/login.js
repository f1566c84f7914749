// Logging in: as a SCRAM user of the cluster, at the login provider, or either.
import { h, replace, refusal, field } from "../dom.js";
import { begin, logIn, logInElsewhere, session } from "../api.js";
import { chooseLanguage, language, LANGUAGES, t } from "../words.js";

export async function showLogin(done) {
  const said = h("div", { "aria-live": "polite" });
  const provider = session.provider ? providerButton(said) : null;
  const passwords = session.passwords ? passwordForm(said, done) : null;
  replace(document.body, h("main", { class: "login" }, h("section", { class: "card" },
    h("div", { class: "brand" }, h("img", { src: "icon.svg", alt: "" }), "Tidelog"),
    provider,
    provider && passwords ? h("p", { class: "muted or" }, t("or")) : null,
    passwords,
    said,
    h("select", {
      "aria-label": t("Language"),
      onchange: (event) => { chooseLanguage(event.target.value); showLogin(done); },
    }, Object.entries(LANGUAGES).map(([code, name]) => h("option", { value: code, selected: code === language() }, name))))));
  document.querySelector(".login input, .login button")?.focus();
}

function providerButton(said) {
  const button = h("button", {
    type: "button", class: "main-action",
    onclick: async () => {
      button.disabled = true;
      replace(said);
      try {
        await logInElsewhere();
      } catch (error) {
        // The session may have ended while the page was open: the next try has a new one.
        await begin().catch(() => null);
        replace(said, refusal(error));
        button.disabled = false;
      }
    },
  }, t("Log in with {provider}", { provider: session.provider }));
  return button;
}

function passwordForm(said, done) {
  const user = h("input", { name: "user", autocomplete: "username", required: true, autofocus: true });
  const password = h("input", { name: "password", type: "password", autocomplete: "current-password", required: true });
  const button = h("button", { class: session.provider ? "" : "main-action" }, t("Log in"));
  return h("form", {
    onsubmit: async (event) => {
      event.preventDefault();
      button.disabled = true;
      replace(said);
      try {
        await logIn(user.value, password.value);
        await done();
      } catch (error) {
        replace(said, refusal(error));
        password.value = "";
        password.focus();
      }
      button.disabled = false;
    },
  }, h("p", { class: "muted" }, t("Log in as a user of the cluster.")), field(t("User"), user), field(t("Password"), password), button);
}
