// The records of a topic: found from any place, filtered, followed, exported, written, sent again.
import { append, h, replace, card, field, refusal, plain } from "../dom.js";
import { address, atLeast, change, file, get, refuseFirst, session } from "../api.js";
import { bytes, moment, whole } from "../format.js";
import { ask } from "../dialog.js";
import { FORMATS, fieldView, formatName, preview, programs, textOf } from "../records.js";
import { t } from "../words.js";

const KEPT = 500;
const ENDS = { limit: "Limit reached", end: "End of topic", "scan-limit": "Scan limit reached" };

export function showMessages(view, topic, body) {
  const path = view.path("topics", topic.name, "messages");
  const state = { place: "newest", partitions: "", offset: 0, time_ms: 0, limit: 50, filter: "", unmasked: false, read_committed: false, key_format: "auto", value_format: "auto" };
  let stream = null;
  let found = [];
  const rows = h("tbody", {});
  const progress = h("div", { class: "progress", role: "status", "aria-live": "polite" });
  const said = h("div", {});

  const filter = h("input", {
    type: "search", class: "wide mono", spellcheck: "false", placeholder: t('Filter, e.g. value.price > 100 and key.startswith("o-")'), "aria-label": t("Filter"),
    onkeydown: (event) => { if (event.key === "Enter") search(); },
  });
  const where = h("select", {
    "aria-label": t("Start position"), onchange: () => { arrange(); if (!["offset", "time"].includes(where.value)) search(); },
  }, [["newest", "Newest"], ["oldest", "Oldest"], ["offset", "From offset"], ["time", "From time"], ["tail", "Live"]]
    .map(([value, text]) => h("option", { value }, t(text))));
  const offset = h("input", { type: "number", min: 0, value: 0, "aria-label": t("Offset") });
  const time = h("input", { type: "datetime-local", step: 1, "aria-label": t("Time") });
  const partition = h("select", { "aria-label": t("Partition"), onchange: search }, h("option", { value: "" }, t("all partitions")),
    topic.partitions.map((each) => h("option", { value: each.partition }, t("partition {n}", { n: each.partition }))));
  const limit = h("select", { "aria-label": t("Limit"), onchange: search }, [50, 100, 500].map((each) => h("option", { value: each }, t("{n} messages", { n: each }))));
  const keyFormat = h("select", { "aria-label": t("Key format"), onchange: search }, FORMATS.map((each) => h("option", { value: each }, t("Key: {format}", { format: formatName(each) }))));
  const valueFormat = h("select", { "aria-label": t("Value format"), onchange: search }, FORMATS.map((each) => h("option", { value: each }, t("Value: {format}", { format: formatName(each) }))));
  const unmask = h("label", { class: "tick", hidden: true }, h("input", { type: "checkbox", onchange: (event) => { state.unmasked = event.target.checked; search(); } }), t("Show masked fields"));
  const stop = h("button", { type: "button", onclick: () => { end(); progress.append(h("span", {}, t("Stopped"))); }, hidden: true }, t("Stop"));
  const go = h("button", { type: "button", class: "main-action", onclick: search }, t("Search"));

  body.append(
    card(null, [
      h("div", { class: "body stack tight" },
        h("div", { class: "toolbar" }, where, offset, time, partition, limit, keyFormat, valueFormat, h("div", { class: "filter" }, filter, go, stop)),
        h("div", { class: "row" }, progress, h("span", { class: "grow" }), unmask, menu()), said),
      h("div", { class: "scroll" }, h("table", { class: "records", "aria-label": t("Messages") },
        h("thead", {}, h("tr", {}, ["Time", "Partition", "Offset", "Key", "Value"].map((each) =>
          h("th", { scope: "col", class: each === "Partition" || each === "Offset" ? "num" : null }, t(each))))), rows))]));
  view.signal.addEventListener("abort", end);
  arrange();
  search();

  function arrange() {
    offset.hidden = where.value !== "offset";
    time.hidden = where.value !== "time";
    limit.hidden = where.value === "tail";
  }

  function menu() {
    const may = atLeast(topic.role, "operator");
    const button = (text, action) => h("button", { type: "button", onclick: action }, text);
    return h("div", { class: "row" },
      may ? button(t("Produce"), () => produce(path)) : null,
      topic.name.includes("dead_letter") || topic.name.endsWith("dlq") ? button(t("Redrive"), () => redrive(view.path("topics", topic.name, "redrive"), state)) : null,
      button(t("Export"), exportFile), button(t("Copy as…"), copyAs));
  }

  function read() {
    Object.assign(state, {
      place: where.value, offset: Number(offset.value) || 0, partitions: partition.value, limit: Number(limit.value), filter: filter.value.trim(),
      key_format: keyFormat.value, value_format: valueFormat.value,
      time_ms: time.value ? new Date(time.value).getTime() : Date.now() - 3_600_000,
    });
  }

  function end() {
    stream?.close();
    stream = null;
    stop.hidden = true;
    go.hidden = false;
  }

  function search() {
    end();
    read();
    found = [];
    replace(rows);
    replace(said);
    replace(progress, h("span", {}, t("Reading…")));
    stream = new EventSource(address(path.concat("/stream"), state));
    stop.hidden = false;
    go.hidden = true;
    stream.addEventListener("records", (event) => take(JSON.parse(event.data)));
    stream.addEventListener("progress", (event) => tell(JSON.parse(event.data)));
    stream.addEventListener("end", (event) => { tell(JSON.parse(event.data)); end(); none(); });
    stream.addEventListener("failed", (event) => { replace(said, refusal({ message: JSON.parse(event.data).error })); replace(progress); end(); });
    // A refusal has no events: ask once more, plainly, for the sentence.
    stream.onerror = async () => {
      if (!stream || (state.place === "tail" && stream.readyState === EventSource.CONNECTING)) return;
      const isCut = stream.readyState === EventSource.CONNECTING;
      end();
      replace(progress);
      if (isCut) { replace(said, refusal({ message: t("The connection to the console was lost. Search again.") })); return; }
      try { await get(path, { ...state, place: state.place === "tail" ? "newest" : state.place, limit: 1 }, view.signal); } catch (error) { replace(said, refusal(error)); }
    };
  }

  function none() {
    if (!found.length) replace(rows, h("tr", {}, h("td", { colspan: 5 }, h("div", { class: "empty" }, h("strong", {}, state.filter ? t("No messages match the filter") : t("No messages"))))));
  }

  function tell({ scanned, total, matched, read_bytes, ended, left_out = [] }) {
    replace(said, left_out.length ? refusal({ message: t("Skipped partitions without a leader: {list}", { list: left_out.join(", ") }) }) : null);
    if (state.place === "tail") {
      replace(progress, h("span", { class: "pulse" }), h("span", {}, t("Live: {n} received, {m} shown", { n: whole(scanned), m: whole(Math.min(matched, KEPT)) })));
      return;
    }
    const bar = h("i", {});
    bar.style.width = `${total ? Math.min(100, 100 * scanned / total) : 100}%`;
    replace(progress, state.filter && !ended ? h("div", { class: "meter", role: "progressbar" }, bar) : null,
      h("span", {}, t("{m} found, {n} of {total} read ({size})", { m: whole(matched), n: whole(scanned), total: whole(total), size: bytes(read_bytes) })),
      ended ? h("span", {}, t(ENDS[ended])) : null);
  }

  function take(records) {
    if (state.place === "tail") {
      found = [...records.reverse(), ...found].slice(0, KEPT);
      rows.prepend(...records.map(line));
      while (rows.childElementCount > KEPT) rows.lastElementChild.remove();
    } else {
      found.push(...records);
      rows.append(...records.map(line));
    }
    if (records.some((each) => each.value.masked || each.key.masked || each.headers.some((header) => header.value.masked))) unmask.hidden = false;
  }

  function line(record) {
    const row = h("tr", { tabindex: "0", onclick: toggle, onkeydown: (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); toggle(); } } },
      h("td", {}, moment(record.timestamp_ms)), h("td", { class: "num" }, record.partition), h("td", { class: "num" }, record.offset),
      h("td", { class: "key" }, preview(record.key, 60)), h("td", { class: "preview" }, preview(record.value)));
    let detail = null;
    function toggle() {
      if (detail) { detail.remove(); detail = null; row.classList.remove("open"); return; }
      detail = h("tr", { class: "detail" }, h("td", { colspan: 5 }, detailOf(record)));
      row.classList.add("open");
      row.after(detail);
    }
    return row;
  }

  function detailOf(record) {
    const parts = h("div", { class: "stack" });
    const draw = (shown) => replace(parts,
      h("div", { class: "row" }, h("span", { class: "muted" }, `${topic.name}-${shown.partition} @ ${shown.offset} · ${moment(shown.timestamp_ms)}`), h("span", { class: "grow" }),
        shown.value.cut || shown.key.cut ? h("button", { type: "button", onclick: whole_ }, t("Load full message")) : null,
        topic.internal ? null : h("button", { type: "button", onclick: () => resend(path, topic, shown) }, t("Resend"))),
      fieldView(t("Value"), shown.value), fieldView(t("Key"), shown.key),
      shown.headers.length ? h("div", { class: "stack tight" }, h("h3", {}, t("Headers")), h("table", {}, h("tbody", {}, shown.headers.map((each) =>
        h("tr", {}, h("td", { class: "mono" }, plain(each.name)), h("td", { class: "mono" }, preview(each.value, 4000)))))),
        shown.more_headers ? h("p", { class: "muted small" }, t("{n} more headers are not shown.", { n: whole(shown.more_headers) })) : null) : null);
    const whole_ = async () => {
      try { draw(await get(`${path}/${record.partition}/${record.offset}`, { unmasked: state.unmasked, key_format: state.key_format, value_format: state.value_format }, view.signal)); } catch (error) { parts.append(refusal(error)); }
    };
    draw(record);
    return parts;
  }

  function exportFile() {
    read();
    const format = h("select", {}, ["jsonl", "csv", "parquet"].map((each) => h("option", { value: each }, each === "parquet" ? "Parquet" : each.toUpperCase())));
    const most = h("input", { type: "number", min: 1, max: 1_000_000, value: 10_000 });
    ask({
      title: t("Export messages"), action: t("Download"),
      content: [h("p", { class: "muted" }, t("Exports the results of the search above, with its start position and filter.")), h("div", { class: "row" }, field(t("Format"), format), field(t("Max messages"), most))],
      act: async (closed) => {
        const query = { ...state, place: state.place === "tail" ? "newest" : state.place, limit: Number(most.value), format: format.value };
        if (query.format === "parquet") {
          const made = URL.createObjectURL(await file(`${path}/export`, query, closed));
          download(made, `${topic.name}.parquet`);
          setTimeout(() => URL.revokeObjectURL(made), 60_000);
          return null;
        }
        await refuseFirst(`${path}/export`, query);
        download(address(`${path}/export`, query), "");
        return null;
      },
    });
  }

  function copyAs() {
    read();
    const texts = programs(session.clusters.find((each) => each.name === view.cluster).bootstrap, topic.name, state);
    ask({
      title: t("Copy as…"), action: t("Close"), large: true, only: true, act: () => null,
      content: Object.entries(texts).map(([name, text]) => h("div", { class: "stack tight" },
        h("div", { class: "row" }, h("h3", {}, name), h("span", { class: "grow" }), h("button", {
          type: "button", onclick: async (event) => { const { target } = event; await navigator.clipboard.writeText(text); target.textContent = t("Copied"); },
        }, t("Copy"))), h("pre", { class: "value" }, text))),
    });
  }
}

function download(href, name) {
  const link = h("a", { href, download: name });
  document.body.append(link);
  link.click();
  link.remove();
}

function headerLines(text) {
  return text.split("\n").filter((line) => line.includes(":")).map((line) => {
    const [name, ...value] = line.split(":");
    return { name: name.trim(), value: value.join(":").trim() };
  });
}

function produce(path) {
  const key = h("input", { class: "wide mono", autocomplete: "off", "aria-label": t("Key") });
  const value = h("textarea", { spellcheck: "false" });
  const headers = h("textarea", { spellcheck: "false", placeholder: "trace: abc", rows: 2 });
  const partition = h("input", { type: "number", min: 0, placeholder: t("by key") });
  const without = h("input", { type: "checkbox" });
  return ask({
    title: t("Produce message"), action: t("Produce"), large: true,
    content: [field(t("Key (empty for no key)"), key), field(t("Value"), value), h("label", { class: "tick" }, without, t("No value (tombstone)")),
      field(t("Headers (name: value, one per line)"), headers), field(t("Partition"), partition)],
    act: async () => {
      const written = await change("POST", path, {
        key: key.value === "" ? null : key.value, value: without.checked ? null : value.value, headers: headerLines(headers.value),
        partition: partition.value === "" ? null : Number(partition.value),
      });
      return t("Written to partition {p} at offset {o}", { p: written.partition, o: written.offset });
    },
  });
}

function resend(path, topic, record) {
  const target = h("input", { class: "wide mono", value: topic.name, autocomplete: "off" });
  const headers = headerRows(record.headers, record.more_headers);
  return ask({
    title: t("Resend"), action: t("Send"), large: true,
    content: [h("p", { class: "muted" }, t("The key, the value and unchanged headers are sent byte for byte.")), field(t("To topic"), target), headers.element],
    act: async () => {
      const written = await change("POST", `${path}/resend`, { partition: record.partition, offset: record.offset, topic: target.value.trim(), headers: headers.given() });
      return t("Written to partition {p} at offset {o}", { p: written.partition, o: written.offset });
    },
  });
}

/** A record's headers, a row for each, to be left alone, edited or removed; `given()` is what the API is told of them.
 *  A header that is left alone is named by its place: what is shown of it may be cut, masked or no text. `more` are not shown at all. */
function headerRows(headers, more) {
  const rows = h("tbody", {});
  const all = headers.map((header, place) => headerRow(header, place));
  append(rows, all.map((each) => each.element));
  const add = h("button", {
    type: "button",
    onclick: () => { const row = headerRow(null, null); all.push(row); rows.append(row.element); row.element.querySelector("input").focus(); },
  }, t("Add header"));
  const given = (some) => some.map((each) => each.given()).filter(Boolean);
  return {
    element: h("div", { class: "stack tight" }, h("h3", {}, t("Headers")), h("table", { class: "headers" }, rows), h("div", { class: "row" }, add)),
    given: () => {
      if (all.every((each) => each.isAsItWas())) return null;
      const unseen = Array.from({ length: more }, (_, at) => ({ keep: headers.length + at }));
      return [...given(all.slice(0, headers.length)), ...unseen, ...given(all.slice(headers.length))];
    },
  };
}

/** One header; a new one has no place. */
function headerRow(header, place) {
  const isNew = header === null;
  // What is not shown whole, or is no text, cannot be edited here.
  const isEditable = isNew || (["text", "json"].includes(header.value.kind) && !header.value.cut && !header.value.masked);
  const name = h("input", { class: "wide mono", value: isNew ? "" : header.name, autocomplete: "off", spellcheck: "false", "aria-label": t("Header name") });
  const value = h("textarea", { rows: 2, spellcheck: "false", "aria-label": t("Header value") }, isNew || !isEditable ? "" : textOf(header.value));
  const before = { name: name.value, value: value.value };  // controls keep not every line end
  const hasChanged = () => name.value !== before.name || value.value !== before.value;
  const button = (text, next) => h("button", { type: "button", class: "plain", onclick: () => draw(next) }, text);
  const element = h("tr", {});
  let state;
  function draw(next) {
    state = next;
    element.className = state;
    element.hidden = isNew && state === "removed";
    if (state === "edited") replace(element, h("td", {}, name), h("td", {}, value), h("td", { class: "still" }, isNew ? button(t("Remove"), "removed") : button(t("Undo"), "kept")));
    else if (!isNew) replace(element, h("td", { class: "mono" }, plain(header.name)), h("td", { class: "mono" }, preview(header.value, 120), header.value.size > 120 ? " …" : null),
      h("td", { class: "still" }, state === "removed" ? button(t("Undo"), "kept") : [isEditable ? button(t("Edit"), "edited") : null, button(t("Remove"), "removed")]));
    if (state === "kept") [name.value, value.value] = [before.name, before.value];
  }
  draw(isNew ? "edited" : "kept");
  return {
    element,
    isAsItWas: () => (isNew ? state === "removed" || !hasChanged() : state !== "removed" && !hasChanged()),
    given: () => {
      if (state === "removed" || (isNew && !hasChanged())) return null;
      if (!hasChanged()) return { keep: place };
      return { name: name.value === before.name && !isNew ? header.name : name.value, value: value.value };
    },
  };
}

async function redrive(path, state) {
  const most = h("input", { type: "number", min: 1, max: 10_000, value: 100 });
  const request = (dry) => ({ place: state.place === "tail" ? "newest" : state.place, partitions: state.partitions, offset: state.offset, time_ms: state.time_ms, filter: state.filter, unmasked: state.unmasked, key_format: state.key_format, value_format: state.value_format, limit: Number(most.value), dry_run: dry });
  const told = (answer) => Object.entries(answer.by_topic).map(([name, count]) => `${name}: ${count}`).join(", ") || t("none");
  let plan = null;
  await ask({
    title: t("Redrive dead letters"), action: t("Preview"),
    content: [h("p", { class: "muted" }, t("Sends the dead letters found by the search above back to the topics named in their headers.")), field(t("Max messages"), most)],
    act: async () => { plan = await change("POST", path, request(true)); return null; },
  });
  if (!plan) return;
  await ask({
    title: t("Redrive dead letters"), action: t("Send"),
    content: [h("p", {}, plain(t("To send: {list}", { list: told(plan) }))), plan.without_origin ? h("p", { class: "muted" }, t("{n} dead letters are skipped: they name no topic.", { n: plan.without_origin })) : null, plan.left ? h("p", { class: "muted" }, t("{n} dead letters are skipped: already sent, sent too often, or the original message is missing.", { n: plan.left })) : null, plan.ended === "scan-limit" ? h("p", { class: "muted" }, t("Scan limit reached. To send the rest, redrive again from a later offset or time.")) : null],
    ready: () => Object.keys(plan.by_topic).length > 0,
    act: async () => t("Sent: {list}", { list: told(await change("POST", path, request(false))) }),
  });
}
