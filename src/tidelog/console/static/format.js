// Numbers and times for people, in the language of the page.
import { language, t } from "./words.js";

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

export const whole = (number) => (number === null || number === undefined ? "–" : new Intl.NumberFormat(language()).format(number));

/** 1,234 → 1.2k: for tiles and axes. */
export const short = (number) => (number === null || number === undefined ? "–"
  : new Intl.NumberFormat(language(), { notation: "compact", maximumFractionDigits: 1 }).format(number));

export function bytes(number) {
  if (number === null || number === undefined) return "–";
  let unit = 0;
  let size = number;
  while (size >= 1024 && unit < UNITS.length - 1) { size /= 1024; unit += 1; }
  return `${new Intl.NumberFormat(language(), { maximumFractionDigits: size < 10 && unit ? 1 : 0 }).format(size)} ${UNITS[unit]}`;
}

export const rate = (number) => (number ? t("{n}/s", { n: number < 10 ? number.toFixed(1) : short(number) }) : "–");
export const byteRate = (number) => (number ? t("{n}/s", { n: bytes(number) }) : "–");

/** Seconds as people say them. */
export function span(seconds, atLeast = false) {
  if (seconds === null || seconds === undefined) return "–";
  const sign = atLeast ? "≥ " : "";
  for (const [unit, length] of [["d", 86400], ["h", 3600], ["min", 60]]) {
    if (seconds >= 2 * length) return `${sign}${Math.floor(seconds / length)} ${t(unit)}`;
  }
  return `${sign}${seconds < 10 ? seconds.toFixed(1) : Math.round(seconds)} ${t("s")}`;
}

export const clock = (ms) => new Intl.DateTimeFormat(language(), { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false }).format(ms);

/** The date and the time to the millisecond. */
export function moment(ms) {
  if (ms < 0) return "–";
  const date = new Date(ms);
  if (Number.isNaN(date.getTime())) return `${ms} ms`;
  const two = (number, length = 2) => String(number).padStart(length, "0");
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}.${two(date.getMilliseconds(), 3)}`;
}

/** The time today, else with the date. */
export const lately = (ms) => (new Date(ms).toDateString() === new Date().toDateString() ? clock(ms) : moment(ms).slice(5, 16));
