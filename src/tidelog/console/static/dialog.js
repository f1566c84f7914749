// Dialogs: a form over the page. The browser keeps the focus inside, and Escape closes it.
import { h, refusal, replace, field, plain } from "./dom.js";
import { t } from "./words.js";

/**
 * Ask for something. `content` are elements of the form; `act` does it and may throw; a text that it returns is shown.
 * It is given a signal that the dialog was closed, for what may then be given up.
 * `only`: there is nothing to cancel; `stays`: it may be done again and again.
 * Resolves to whether it was done.
 */
export function ask({ title, content, action, act, danger = false, large = false, only = false, stays = false, ready = () => true }) {
  return new Promise((resolve) => {
    const closed = new AbortController();
    let isDone = false;
    let isBusy = false; // and stays so when it was done, unless it may be done again
    const said = h("div", { "aria-live": "polite" });
    const go = h("button", { class: `main-action ${danger ? "danger" : ""}` }, action);
    const close = h("button", { type: "button", hidden: only, onclick: () => dialog.close() }, stays ? t("Close") : t("Cancel"));
    const check = () => { go.disabled = isBusy || !ready(); };
    const form = h("form", {
      oninput: check,
      onsubmit: async (event) => {
        event.preventDefault();
        if (isBusy) return;
        isBusy = true;
        check();
        replace(said);
        try {
          const remark = await act(closed.signal);
          isDone = true;
          if (stays) {
            isBusy = false;
            check();
            return;
          }
          if (remark) {
            replace(said, h("div", { class: "done" }, plain(remark)));
            go.hidden = true;
            close.textContent = t("Close");
            return;
          }
          dialog.close();
        } catch (error) {
          replace(said, refusal(error));
          isBusy = false;
          check();
        }
      },
    }, h("header", {}, h("h2", {}, title)), h("div", { class: "body" }, content, said), h("footer", {}, close, go));
    const dialog = h("dialog", {
      class: large ? "large" : null, "aria-label": title,
      onclose: () => { closed.abort(); dialog.remove(); resolve(isDone); },
    }, form);
    document.body.append(dialog);
    dialog.showModal();
    check();
  });
}

/** Ask to type a name before something is gone for good. */
export function askTyped({ title, text, name, action, act }) {
  const typed = h("input", { class: "wide mono", autocomplete: "off", spellcheck: "false", "aria-label": t("Name to confirm") });
  return ask({
    title, action, danger: true,
    content: [h("p", {}, text), field(t("Type the name to confirm"), typed, plain(name))],
    ready: () => typed.value === name,
    act,
  });
}
