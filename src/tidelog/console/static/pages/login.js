// Logging in as a SCRAM user of the cluster.
import { h, replace, refusal, field } from "../dom.js";
import { logIn } from "../api.js";
import { t } from "../words.js";

export async function showLogin(done) {
  const user = h("input", { name: "user", autocomplete: "username", required: true, autofocus: true });
  const password = h("input", { name: "password", type: "password", autocomplete: "current-password", required: true });
  const said = h("div", { "aria-live": "polite" });
  const button = h("button", { class: "main-action" }, t("Log in"));
  const form = h("form", {
    class: "card",
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
  }, h("div", { class: "brand" }, h("img", { src: "icon.svg", alt: "" }), "Tidelog"),
  h("p", { class: "muted" }, t("Log in as a user of the cluster.")), field(t("User"), user), field(t("Password"), password), said, button);
  replace(document.body, h("main", { class: "login" }, form));
  user.focus();
}
