// The words of the pages: English in the code, other languages in tables beside it.
import { CHINESE } from "./chinese.js";

export const LANGUAGES = { en: "English", zh: "中文" };
const TABLES = { zh: CHINESE };

// English knows one thing from many.
const ONE = {
  "{n} partitions": "{n} partition",
  "{n} topics": "{n} topic",
  "{n} groups": "{n} group",
  "{n} connections": "{n} connection",
  "{n} messages behind": "{n} message behind",
  "about {n} messages": "about {n} message",
  "{n} dead letters written": "{n} dead letter written",
};

let chosen = localStorage.getItem("language") ?? (navigator.language.startsWith("zh") ? "zh" : "en");

export const language = () => chosen;

export function chooseLanguage(code) {
  chosen = code in LANGUAGES ? code : "en";
  localStorage.setItem("language", chosen);
  document.documentElement.lang = chosen === "zh" ? "zh-CN" : "en";
}

/** A text in the language of the page; `{name}` is replaced by a value. What has no translation stays English. */
export function t(text, values = {}) {
  const words = TABLES[chosen]?.[text] ?? (String(values.n) === "1" ? ONE[text] : undefined) ?? text;
  return words.replace(/\{(\w+)\}/g, (whole, name) => (Object.hasOwn(values, name) ? String(values[name]) : whole));
}
