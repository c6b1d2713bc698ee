for (const b of document.querySelectorAll("[data-copies]")) b.hidden = false
addEventListener("click", e => {
  const b = e.target.closest("[data-copies]")
  if (!b) return
  const field = b.previousElementSibling, shown = field.value
  field.value = field.dataset.copy || shown
  field.select()
  if (navigator.clipboard) navigator.clipboard.writeText(field.value)
  else document.execCommand("copy")
  field.value = shown
  b.firstChild.data = b.dataset.copies
})
