// The words for what happens to a cluster.
import { h, place, plain } from "./dom.js";
import { t } from "./words.js";

const TEXTS = {
  "broker-gone": "Broker {broker} is gone",
  "broker-came": "Broker {broker} came, at {address}",
  "controller-moved": "Broker {broker} is the controller now",
  "topic-created": "Topic {topic} was created",
  "topic-deleted": "Topic {topic} was deleted",
  "topic-made-anew": "Topic {topic} was deleted and made anew",
  "partitions-added": "Topic {topic} has {now} partitions instead of {before}",
  "leaders-moved": "Leadership of {count} partitions went from broker {from} to {to}",
  "partitions-offline": "{count} partitions of {topic} have no leader",
  "partitions-online": "{count} partitions of {topic} have a leader again",
  "replicas-changed": "{count} partitions of {topic} have other replicas",
  "isr-shrunk": "{count} partitions of {topic} lost replicas that were in sync",
  "isr-grown": "{count} partitions of {topic} have more replicas in sync",
  "group-created": "Group {group} is new",
  "group-deleted": "Group {group} is gone",
  "group-rebalances": "Group {group} rebalances ({state})",
  "group-state": "Group {group} is {state}, and was {before}",
  "group-rebalanced": "Group {group} has rebalanced: {why}",
  "topic-config-set": "{config} of topic {topic} is {now}{was}{by}",
  "topic-config-removed": "{config} of topic {topic} was taken back{was}{by}",
  "broker-config-set": "{config} of broker {broker} is {now}{was}{by}",
  "broker-config-removed": "{config} of broker {broker} was taken back{was}{by}",
  "brokers-config-set": "{config} of all brokers is {now}{was}{by}",
  "brokers-config-removed": "{config} of all brokers was taken back{was}{by}",
  "throttle-set": "Replication of moving partitions is throttled on {count} brokers, to {rate} bytes a second",
  "throttle-removed": "The throttle of replication is gone from {count} brokers",
  "certificate-expires": "The certificate of broker {broker} expires on {date}, within {days} days",
  "certificate-expired": "The certificate of broker {broker} has expired, on {date}",
  "certificate-changed": "Broker {broker} shows another certificate, which expires on {date}",
  "disk-failed": "Log directory {path} of broker {broker} failed",
  "disk-nearly-full": "Log directory {path} of broker {broker} is nearly full",
  "cluster-silent": "The cluster does not answer: {problem}",
  "cluster-answers": "The cluster answers again",
};
const LINKS = { topic: "topics", group: "groups" };

// Why a group has rebalanced; an event has those that hold.
const WHY = {
  "joined": "{n} joined ({names})",
  "left": "{n} left ({names})",
  "returned": "{n} left and came back ({names})",
  "resubscribed": "{n} subscribed to other topics ({names})",
  "grown": "topics have other numbers of partitions ({names})",
  "appeared": "it reads more topics ({names})",
  "vanished": "it reads fewer topics ({names})",
};

/** The reasons of a rebalance as one text. */
export function whyText(args) {
  const found = Object.entries(WHY).filter(([reason]) => reason in args).map(([reason, words]) => t(words, { n: args[reason], names: args[`${reason}_names`] }));
  return found.length ? found.join(t("; ")) : t("members and topics are as they were: a member has asked for it, or had not polled in time");
}

/** Parts of texts that are made of others. */
function filled({ kind, args }) {
  if (kind === "group-rebalanced") return { ...args, why: whyText(args) };
  if (!kind.includes("-config-")) return args;
  return { ...args, was: "before" in args ? t(", and was {before}", args) : "", by: "user" in args ? t(" (by {user}, here)", args) : "" };
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
