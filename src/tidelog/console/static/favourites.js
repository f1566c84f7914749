// Favourite topics, kept in this browser, by cluster.
const name = (cluster) => `favourites ${cluster}`;

export function favourites(cluster) {
  try {
    const found = JSON.parse(localStorage.getItem(name(cluster)) ?? "[]");
    return Array.isArray(found) ? found.filter((each) => typeof each === "string") : [];
  } catch {
    return [];
  }
}

export const isFavourite = (cluster, topic) => favourites(cluster).includes(topic);

export function toggleFavourite(cluster, topic) {
  const known = favourites(cluster);
  const now = known.includes(topic) ? known.filter((each) => each !== topic) : [...known, topic];
  localStorage.setItem(name(cluster), JSON.stringify(now));
}
