// Records as people see them: fields as text, a tree of JSON (or of what was decoded to it) or hexadecimal digits; and how programs read them.
import { h, plain } from "./dom.js";
import { bytes } from "./format.js";
import { t } from "./words.js";

const TREE_NODES = 2000;
const OPEN_DEPTH = 3;
const FORMS = { json: "JSON", text: "Text", hex: "Hex", avro: "Avro", protobuf: "Protobuf", jsonschema: "JSON Schema", msgpack: "MsgPack", cbor: "CBOR", internal: "Tree" };

/** Formats in which somebody may want to see keys or values. */
export const FORMATS = ["auto", "text", "json", "hex", "avro", "protobuf", "jsonschema", "msgpack", "cbor"];

/** The name of a format. */
export const formatName = (format) => (format === "auto" ? t("automatic") : format === "text" ? t("text") : FORMS[format]);

/** The text of a field; the API leaves out what is empty. */
export const textOf = (field) => field.text ?? "";

/** A field in one line. */
export function preview(given, limit = 240) {
  const field = { ...given, text: textOf(given) };
  if (field.kind === "null") return h("span", { class: "null" }, "null");
  if (field.problem) return h("span", { class: "muted" }, field.kind === "hex" ? `0x${field.text.slice(0, 32)}` : plain(field.text.slice(0, 32)), " · ", plain(field.problem));
  if (field.kind === "hex") return h("span", { class: "muted" }, `0x${field.text.slice(0, limit)}`);
  return plain(field.text.slice(0, limit).replaceAll("\n", " "));
}

/** A field with the choice of how it is shown. */
export function fieldView(label, given) {
  const field = { size: 0, ...given, text: textOf(given) };
  if (field.kind === "null") return h("div", {}, h("h3", {}, label, " "), h("span", { class: "null" }, "null"));
  const forms = field.kind === "json" ? [field.format || "json", "text", field.format && !field.hex ? null : "hex"].filter(Boolean) : field.kind === "text" ? ["text", "hex"] : ["hex"];
  const body = h("div", { class: "value" });
  const buttons = forms.map((form) => h("button", { type: "button", class: "plain", onclick: () => choose(form) }, FORMS[form]));
  const choose = (form) => {
    buttons.forEach((button, index) => button.setAttribute("aria-pressed", String(forms[index] === form)));
    body.replaceChildren(shownAs(field, form));
  };
  choose(field.cut && field.kind === "json" ? "text" : forms[0]);
  return h("div", { class: "stack tight" },
    h("div", { class: "row" }, h("h3", {}, label), h("span", { class: "muted small" }, bytes(field.size), schemaText(field), field.masked ? ` · ${t("masked")}` : "",
      field.cut ? ` · ${t("truncated")}` : ""), h("span", { class: "grow" }), buttons),
    field.problem ? h("div", { class: "problem small" }, plain(field.problem)) : null, body);
}

function schemaText({ schema }) {
  if (!schema) return "";
  const subject = schema.subject ? `${schema.subject}${schema.version ? ` v${schema.version}` : ""}` : "";
  const parts = [FORMS[schema.type], t("schema {id}", { id: schema.id ?? schema.guid }), subject, schema.name].filter(Boolean);
  return plain(` · ${parts.join(" · ")}`);
}

/** A number with more digits than the browser's numbers have, as it was written. */
class LongNumber {
  constructor(source) { this.source = source; }
}

function exact(key, value, context) {
  return typeof value === "number" && context?.source !== undefined && String(value) !== context.source ? new LongNumber(context.source) : value;
}

function shownAs(field, form) {
  if (form === "hex") return h("pre", {}, hexLines(field));
  if (form !== "text") {
    try {
      const budget = { left: TREE_NODES };
      return h("div", { class: "json" }, tree(null, JSON.parse(field.text, exact), 0, budget));
    } catch { /* cut, or deeper than this browser follows: it is text as well */ }
  }
  return h("pre", {}, plain(field.text));
}

function tree(name, value, depth, budget) {
  budget.left -= 1;
  const label = name === null ? null : [h("span", { class: "k" }, plain(String(name))), ": "];
  if (value instanceof LongNumber) return h("div", { class: "leaf" }, label, h("span", { class: "n" }, value.source));
  if (value !== null && typeof value === "object") {
    const entries = Object.entries(value);
    const open = Array.isArray(value) ? `[${entries.length}]` : `{${entries.length}}`;
    if (!entries.length) return h("div", { class: "leaf" }, label, open);
    const details = h("details", { open: depth < OPEN_DEPTH }, h("summary", {}, label, open));
    const unfold = () => {
      if (details.childElementCount > 1) return;
      for (const [key, each] of entries) {
        if (budget.left <= 0) { details.append(h("div", { class: "leaf muted" }, "…")); break; }
        details.append(tree(key, each, depth + 1, budget));
      }
    };
    if (depth < OPEN_DEPTH) unfold();
    details.addEventListener("toggle", () => { budget.left = Math.max(budget.left, TREE_NODES); unfold(); });
    return details;
  }
  const kind = typeof value === "string" ? "s" : typeof value === "number" ? "n" : "w";
  return h("div", { class: "leaf" }, label, h("span", { class: kind }, plain(typeof value === "string" ? JSON.stringify(value) : String(value))));
}

function hexLines(field) {
  const data = field.kind === "hex" ? fromHex(field.text) : field.hex ? fromHex(field.hex) : new TextEncoder().encode(field.text);
  const lines = [];
  for (let start = 0; start < Math.min(data.length, 65536); start += 16) {
    const part = data.subarray(start, start + 16);
    const digits = [...part].map((each) => each.toString(16).padStart(2, "0"));
    const letters = [...part].map((each) => (each >= 32 && each < 127 ? String.fromCharCode(each) : "·")).join("");
    lines.push(`${start.toString(16).padStart(8, "0")}  ${digits.slice(0, 8).join(" ").padEnd(23)}  ${digits.slice(8).join(" ").padEnd(23)}  ${letters}`);
  }
  if (data.length < field.size) lines.push("…");
  return lines.join("\n");
}

function fromHex(text) {
  const data = new Uint8Array(text.length / 2);
  for (let at = 0; at < data.length; at += 1) data[at] = Number.parseInt(text.slice(2 * at, 2 * at + 2), 16);
  return data;
}

/** Programs that read what is on the screen; names are quoted so that any topic's name is only a name. */
export function programs(bootstrap, topic, { place, offset, time_ms }) {
  const python = JSON.stringify(topic);
  const shell = `'${topic.replaceAll("'", "'\\''")}'`;
  const spark = { newest: "latest", tail: "latest", oldest: "earliest" }[place];
  const starting = place === "offset" || place === "time" ? (place === "time" ? `.option("startingTimestamp", "${time_ms}")` : `.option("startingOffsets", "earliest")  # then .where("offset >= ${offset}")`)
    : `.option("startingOffsets", "${spark}")`;
  const kcat = { newest: "-o -50 -e", oldest: "-o beginning -e", tail: "-o end", offset: `-o ${offset} -e`, time: `-o s@${time_ms} -e` }[place];
  return {
    Python: `from tidelog import Consumer\n\nwith Consumer(bootstrap_servers=${JSON.stringify(bootstrap)}, group_id="my-group", auto_offset_reset="${spark ?? "earliest"}") as consumer:\n    consumer.subscribe([${python}])\n    for record in consumer:\n        print(record.partition, record.offset, record.key, record.value)\n`,
    PySpark: `frame = (\n    spark.readStream.format("tidelog")\n    .option("kafka.bootstrap.servers", ${JSON.stringify(bootstrap)})\n    .option("subscribe", ${python})\n    ${starting}\n    .load()\n)\n`,
    kcat: `kcat -b ${bootstrap} -C -t ${shell} ${kcat} -f '%p %o %k %s\\n'\n`,
  };
}
