// Drives a browser through the dashboard as an owner, then looks at every page with axe: in both languages, on a phone
// and on a desk, in light and in dark. It is started by TestBrowser in a folder where npm has installed the packages beside it.
//
// stdin: {"chromium", "url": as the browser reaches it, "api": the same from here, "email", "password", "newcomer": e-mail of a store that has nothing yet, "orderBody", "pages": ["/dashboard", …], "publicPages": [as a visitor], "shots": folder or ""}
// exit 0: all is well; else stderr says what is not.
import { createRequire } from 'node:module';
import { readFileSync } from 'node:fs';
import assert from 'node:assert/strict';

const require = createRequire(process.cwd() + '/');
const { chromium } = require('playwright-core');
const axe = readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8');
const task = JSON.parse(readFileSync(0, 'utf8'));

const browser = await chromium.launch({
  executablePath: task.chromium,
  args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync',
    '--host-resolver-rules=MAP toko.test 127.0.0.1'], // a name that is not localhost: no browser favours it
});
const faults = [];

async function visitor(options) {
  const context = await browser.newContext({ baseURL: task.url, ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(10_000);
  // A refusal to load (the content security policy) and a fault in a page are both told on the console. 4xx is told too, and meant.
  page.on('console', m => { if (m.type() === 'error' && !m.text().includes('the server responded with a status of 4')) faults.push(`${page.url()}: ${m.text()}`); });
  page.on('pageerror', e => faults.push(`${page.url()}: ${e}`));
  return page;
}

async function signIn(page, email = task.email) {
  await page.goto('/dashboard/login');
  await page.fill('#email', email);
  await page.fill('#password', task.password);
  await page.keyboard.press('Enter');
  await page.waitForURL('**/dashboard');
}

async function api(key, method, path, body) {
  const r = await fetch(task.api + path, { method, headers: { Authorization: `Bearer ${key}`, 'Content-Type': 'application/json' }, body });
  return { status: r.status, ...(await r.json()) };
}

// What an owner does on his first day.
async function firstDay() {
  const page = await visitor({ locale: 'id-ID' });
  await page.goto('/dashboard');
  assert.match(page.url(), /login$/);
  await page.fill('#email', task.email);
  await page.fill('#password', 'salah');
  await page.click('button');
  await page.getByText('E-mail atau kata sandi salah').waitFor();
  await signIn(page);

  await page.click('nav >> text=API & webhook');
  await page.fill('#name', 'situs toko');
  await page.click('text=Buat kunci');
  const key = await page.inputValue('#new-key');
  assert.match(await page.inputValue('#new-curl'), /^curl .*so_/);
  const made = await api(key, 'POST', '/v1/orders', task.orderBody);
  assert.equal(made.status, 201);
  const order = made.data.order;

  await page.goto('/dashboard/developers');
  assert.equal(await page.locator('#new-key').count(), 0);
  await page.fill('#url', 'https://toko.example.id/webhooks');
  await page.check('text=orderPaid');
  await page.click('text=Tambah webhook');
  assert.match(await page.inputValue('#secret'), /^whsec_/);

  const buyer = await visitor({ locale: 'id-ID', viewport: { width: 375, height: 700 } });
  await buyer.goto(order.checkout_url);
  await buyer.click('.act >> text=Saya sudah transfer');
  await buyer.fill('#bank', 'Mandiri');
  await buyer.click('text=Ya, saya sudah transfer');
  await buyer.getByText('Pembayaran Anda sedang dicek toko').waitFor();
  await buyer.click('text=Saya belum membayar');
  await buyer.getByText('Menunggu transfer Anda').waitFor();
  await buyer.click('.act >> text=Saya sudah transfer');
  await buyer.click('text=Ya, saya sudah transfer');
  await buyer.getByText('Pembayaran Anda sedang dicek toko').waitFor();

  await page.click('nav >> text=Pesanan');
  await page.locator('.todo').getByText('bilang sudah membayar').click();
  await page.click('text=Setujui pembayaran');
  await page.fill('#reason', 'cocok dengan mutasi');
  await page.keyboard.press('Enter');
  await page.getByText('Tersimpan').waitFor();
  await page.getByText('cocok dengan mutasi').waitFor();
  assert.equal((await api(key, 'GET', '/v1/orders/' + order.id)).data.order.status, 'paid');

  await page.goto('/dashboard/developers');
  await page.getByRole('link', { name: 'Cabut situs toko' }).click();
  await page.click('text=Ya, cabut');
  await page.getByText('Kunci dicabut').waitFor();
  assert.equal((await api(key, 'GET', '/v1/orders')).status, 401);
  await page.click('text=Keluar');
  await page.getByText('Anda sudah keluar').waitFor();
}

async function look(page, path, name) {
  await page.goto(path);
  await page.evaluate(axe);
  const found = await page.evaluate(() => window.axe.run());
  for (const v of found.violations)
    faults.push(`${name} ${path}: ${v.id}: ${v.help}: ${v.nodes.slice(0, 3).map(n => n.html + ' ' + n.failureSummary).join(' | ')}`);
  const { width, height } = page.viewportSize();
  for (const w of width < 800 ? [320, 430, width] : [width]) {
    await page.setViewportSize({ width: w, height });
    const over = await page.evaluate(() => document.scrollingElement.scrollWidth - document.documentElement.clientWidth);
    if (over > 0) faults.push(`${name} ${path}: is ${over} px wider than a screen of ${w} px`);
  }
  const small = !name.includes('1280') ? await page.evaluate(() => [...document.querySelectorAll('button, .button, input, select, textarea, nav a')]
    .filter(e => e.type !== 'hidden' && e.type !== 'checkbox' && e.type !== 'radio' && e.offsetHeight > 0 && e.offsetHeight < 36).map(e => e.outerHTML.slice(0, 80))) : [];
  if (small.length) faults.push(`${name} ${path}: too small for a thumb: ${small}`);
  if (task.shots) await page.screenshot({ path: `${task.shots}/${name}${path.replaceAll(/[^a-z0-9]+/gi, '-')}.png`, fullPage: true });
}

// On every phone the rows of the list of orders look alike, the list begins on the first screen although much waits for
// the owner, and all of the navigation is there, in one line.
async function ordersOnAPhone(page) {
  for (const width of [320, 360, 390, 430]) {
    await page.setViewportSize({ width, height: 740 });
    await page.goto('/dashboard');
    // A reference's letters follow from the time of day. The widest ones must not break a line of what waits.
    await page.$$eval('.also', all => all.forEach(e => { e.innerHTML = e.innerHTML.replace(/· [0-9A-Z]{6}\b/, '· WWWMMM'); }));
    const first = await page.$eval('.orders li', e => Math.round(e.getBoundingClientRect().bottom));
    if (width >= 360 && first > 740) faults.push(`the first order ends at ${first} px on a screen of ${width} × 740 px`);
    const places = await page.$$eval('.side nav a', all => all.map(e => e.getBoundingClientRect()).map(r => ({ top: r.top, right: r.right })));
    if (places.some(r => r.top !== places[0].top || r.right > width)) faults.push(`the navigation does not fit into ${width} px`);
    const rows = await page.$$eval('.orders a', all => all.map(a => [a, ...a.children].map(e => Math.round(e.getBoundingClientRect().bottom - a.getBoundingClientRect().top)).join(' ')));
    if (new Set(rows).size !== 1) faults.push(`the rows differ at ${width} px: ${[...new Set(rows)].join(' | ')}`);
  }
  await page.setViewportSize({ width: 360, height: 800 });
}

// A printed page is one sheet, with nothing to press.
async function onOneSheet(page, path) {
  await page.goto(path);
  await page.emulateMedia({ media: 'print' });
  const sheets = (await page.pdf({ format: 'A4' })).toString('latin1').match(/\/Type\s*\/Page\b/g).length;
  const pressed = await page.$$eval('button, .button', all => all.filter(e => e.offsetHeight > 0).length);
  if (sheets !== 1 || pressed) faults.push(`${path} is printed on ${sheets} sheets, with ${pressed} buttons`);
  await page.emulateMedia({ media: 'screen' });
}

// Every page as one kind of visitor sees it.
async function lookAround({ locale, width, colorScheme }) {
  const page = await visitor({ locale, colorScheme, viewport: { width, height: 800 } });
  const name = `${locale.slice(0, 2)}-${width}-${colorScheme}`;
  for (const path of ['/dashboard/login', ...task.publicPages]) await look(page, path, name);
  await signIn(page);
  for (const path of task.pages) await look(page, path, name);
  if (width === 360) await ordersOnAPhone(page);
  if (width === 1280) await onOneSheet(page, task.publicPages[0]);
  await page.context().clearCookies();
  await signIn(page, task.newcomer);
  for (const path of ['/dashboard', '/dashboard/catalog', '/dashboard/catalog?kind=bundle', '/dashboard/payments', '/dashboard/developers']) await look(page, path, 'empty-' + name);
  await page.context().close();
}

try {
  await firstDay();
  const ways = [];
  for (const width of [360, 390, 1280])
    for (const locale of ['id-ID', 'en-GB'])
      for (const colorScheme of ['light', 'dark']) ways.push({ locale, width, colorScheme });
  // Two at once, because a browser seldom keeps two cores busy.
  await Promise.all([0, 1].map(async half => {
    for (const way of ways.filter((_, i) => i % 2 === half)) await lookAround(way);
  }));
} catch (e) {
  faults.push(e.stack);
}
await browser.close();
if (faults.length) {
  console.error(faults.join('\n\n'));
  process.exit(1);
}
