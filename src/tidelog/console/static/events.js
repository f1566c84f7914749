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
  "isr-shrunk": "{count} partitions of {topic} lost replicas that were in sync",
  "isr-grown": "{count} partitions of {topic} have more replicas in sync",
  "group-created": "Group {group} is new",
  "group-deleted": "Group {group} is gone",
  "group-rebalances": "Group {group} rebalances ({state})",
  "group-state": "Group {group} is {state}, and was {before}",
  "disk-failed": "Log directory {path} of broker {broker} failed",
  "disk-nearly-full": "Log directory {path} of broker {broker} is nearly full",
  "cluster-silent": "The cluster does not answer: {problem}",
  "cluster-answers": "The cluster answers again",
};
const LINKS = { topic: "topics", group: "groups" };

/** An event as text, with links to what it is about. */
export function eventText(cluster, { kind, args }) {
  const words = t(TEXTS[kind] ?? kind);
  return words.split(/(\{\w+\})/).map((part) => {
    const name = part.match(/^\{(\w+)\}$/)?.[1];
    if (!name || !(name in args)) return part;
    return LINKS[name] ? h("a", { href: place(cluster, LINKS[name], args[name]) }, plain(String(args[name]))) : plain(String(args[name]));
  });
}
