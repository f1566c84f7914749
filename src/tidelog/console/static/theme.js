// Light or dark: as the person has chosen, else as the system is. Also loaded by pages that have no other script.

/** Colour the page. */
export function paint() {
  const chosen = localStorage.getItem("theme") ?? "system";
  const dark = chosen === "dark" || (chosen === "system" && matchMedia("(prefers-color-scheme: dark)").matches);
  document.documentElement.dataset.theme = dark ? "dark" : "light";
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paint);
paint();
