// Shows the buttons that copy a snippet. Pages work without this file.
for (const button of document.querySelectorAll("[data-copy]")) {
  if (!navigator.clipboard) break;
  button.hidden = false;
  button.addEventListener("click", async () => {
    const label = button.firstChild.nodeValue;
    await navigator.clipboard.writeText(button.parentElement.querySelector("code").textContent);
    button.firstChild.nodeValue = "Copied";
    setTimeout(() => { button.firstChild.nodeValue = label; }, 1500);
  });
}
