// The words for what happens to a cluster.
import { h, place, plain } from "./dom.js";
import { t } from "./words.js";

const TEXTS = {
  "broker-gone": "Broker {broker} went offline",
  "broker-came": "Broker {broker} joined at {address}",
  "controller-moved": "Broker {broker} is now the controller",
  "topic-created": "Topic {topic} was created",
  "topic-deleted": "Topic {topic} was deleted",
  "topic-made-anew": "Topic {topic} was deleted and recreated",
  "partitions-added": "Partition count of topic {topic} changed from {before} to {now}",
  "leaders-moved": "Leadership of {count} partitions moved from broker {from} to {to}",
  "partitions-offline": "{count} partitions of {topic} have no leader",
  "partitions-online": "{count} partitions of {topic} have a leader again",
  "replicas-changed": "Replicas changed for {count} partitions of {topic}",
  "isr-shrunk": "In-sync replicas shrank for {count} partitions of {topic}",
  "isr-grown": "In-sync replicas grew for {count} partitions of {topic}",
  "group-created": "Group {group} was created",
  "group-deleted": "Group {group} was removed",
  "group-rebalances": "Group {group} is rebalancing ({state})",
  "group-state": "Group {group} changed from {before} to {state}",
  "group-rebalanced": "Group {group} rebalanced: {why}",
  "topic-config-set": "{config} of topic {topic} set to {now}{was}{by}",
  "topic-config-removed": "{config} of topic {topic} reset to default{was}{by}",
  "broker-config-set": "{config} of broker {broker} set to {now}{was}{by}",
  "broker-config-removed": "{config} of broker {broker} reset to default{was}{by}",
  "brokers-config-set": "{config} of all brokers set to {now}{was}{by}",
  "brokers-config-removed": "{config} of all brokers reset to default{was}{by}",
  "throttle-set": "Reassignment throttled to {rate} bytes per second on {count} brokers",
  "throttle-removed": "Reassignment throttle removed from {count} brokers",
  "certificate-expires": "The certificate of broker {broker} expires on {date}, within {days} days",
  "certificate-expired": "The certificate of broker {broker} expired on {date}",
  "certificate-changed": "Broker {broker} has a new certificate, which expires on {date}",
  "disk-failed": "Log directory {path} of broker {broker} failed",
  "disk-nearly-full": "Log directory {path} of broker {broker} is nearly full",
  "cluster-silent": "The cluster does not respond: {problem}",
  "cluster-answers": "The cluster responds again",
};
const LINKS = { topic: "topics", group: "groups" };

// Why a group has rebalanced; an event has those that hold.
const WHY = {
  "joined": "{n} joined ({names})",
  "left": "{n} left ({names})",
  "returned": "{n} left and rejoined ({names})",
  "resubscribed": "{n} changed subscriptions ({names})",
  "grown": "partition counts changed ({names})",
  "appeared": "topics added ({names})",
  "vanished": "topics removed ({names})",
};

/** The reasons of a rebalance as one text. */
export function whyText(args) {
  const found = Object.entries(WHY).filter(([reason]) => reason in args).map(([reason, words]) => t(words, { n: args[reason], names: args[`${reason}_names`] }));
  return found.length ? found.join(t("; ")) : t("members and topics did not change: a member requested the rebalance or did not poll in time");
}

/** Parts of texts that are made of others. */
function filled({ kind, args }) {
  if (kind === "group-rebalanced") return { ...args, why: whyText(args) };
  if (!kind.includes("-config-")) return args;
  return { ...args, was: "before" in args ? t(" (was {before})", args) : "", by: "user" in args ? t(" by {user} in this console", args) : "" };
}

/** An event as text, with links to what it is about. */
export function eventText(cluster, event) {
  const args = filled(event);
  return t(TEXTS[event.kind] ?? event.kind).split(/(\{\w+\})/).map((part) => {
    const name = part.match(/^\{(\w+)\}$/)?.[1];
    if (!name || !(name in args)) return part;
    return LINKS[name] ? h("a", { href: place(cluster, LINKS[name], args[name]) }, plain(String(args[name]))) : plain(String(args[name]));
  });
}
