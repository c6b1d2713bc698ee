// Reads the code in the picture that was chosen, where the browser can: its text is posted with the picture.
if ('BarcodeDetector' in window) {
  document.getElementById('picture').addEventListener('change', async (event) => {
    const [file] = event.target.files
    const detector = new BarcodeDetector({ formats: ['qr_code'] })
    const codes = file ? await detector.detect(await createImageBitmap(file)).catch(() => []) : []
    document.getElementById('read').value = codes[0]?.rawValue ?? ''
  })
}
