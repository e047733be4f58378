// Light or dark: as the Airflow around the page, else as the browser.

// Follow the theme of the surrounding Airflow, now and when somebody switches.
export function followTheme() {
  if (window.parent === window) return;
  const around = window.parent.document.documentElement;
  const take = () => {
    const dark = around.classList.contains("dark");
    const light = around.classList.contains("light");
    if (dark || light) document.documentElement.dataset.theme = dark ? "dark" : "light";
  };
  take();
  new MutationObserver(take).observe(around, { attributes: true, attributeFilter: ["class"] });
}
