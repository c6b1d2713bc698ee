// Lives an owner's day in a browser, on a phone without scripts: counts the taps of what is done every day, looks at each
// page on the way, prints thirty slips, and looks at an order's page in every state.
import { execFileSync } from 'node:child_process';
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { act, command, freePort, judge, run, start, visitor, wait, ways, wrong } from './kit.mjs';
import { ownCode } from './shop.mjs';

const phone = { locale: 'id-ID', viewport: { width: 360, height: 740 }, hasTouch: true };
const address = 'Jl. Melati 5 RT 02/RW 07, Kelurahan Sukamaju\nCoblong, Bandung 40132';

const port = await freePort();
const url = `http://127.0.0.1:${port}`;
const store = command('store', 'add', '-name', 'Kopi Kita', '-email', 'owner@example.id', '-contact', '0812 3456 7890', '-test', 'on');
// midtrans makes pages for payments, which nobody pays.
const midtrans = createServer((request, answer) => {
  const [code, body] = request.method === 'POST' ? [201, { token: 'page', redirect_url: 'https://app.sandbox.midtrans.com/snap/v4/redirection/page' }]
    : [404, { status_code: '404', status_message: "Transaction doesn't exist." }];
  answer.writeHead(code, { 'Content-Type': 'application/json' }).end(JSON.stringify(body));
}).listen(0, '127.0.0.1').unref();
await once(midtrans, 'listening');
const key = command('key', 'add', '-name', 'situs', '-scope', 'manage').key;
await start(port, 'serve', '-addr', `127.0.0.1:${port}`, '-public-url', url, '-webhook-allow-private', '-gateway-url',
  `midtrans=http://127.0.0.1:${midtrans.address().port}`);

async function api(method, path, body) {
  const answer = await fetch(url + path, { method, headers: { Authorization: `Bearer ${key}` }, body: body && JSON.stringify(body) });
  const { data, error } = await answer.json();
  assert.ok(answer.ok, `${method} ${path}: ${JSON.stringify(error)}`);
  return data;
}

// openShop sells something, in the ways in which most shops do.
async function openShop() {
  await api('PUT', '/v1/catalog', {
    products: [
      { slug: 'kopi-gayo', title: 'Kopi Gayo 250 g', price: 85000, stock: 400 },
      { slug: 'kopi-toraja', title: 'Kopi Toraja 250 g', price: 92000, stock: 1 },
      { slug: 'teh-melati', title: 'Teh Melati 100 g', price: 38000 }],
    payment_methods: [
      { code: 'bca', name: 'Transfer BCA', provider: 'manual', kind: 'transfer', accounts: [{ bank: 'BCA', number: '1234567890', holder: 'Kopi Kita' }] },
      { code: 'mandiri', name: 'Transfer Mandiri', provider: 'manual', kind: 'transfer', accounts: [{ bank: 'Mandiri', number: '9870012345678' }] },
      { code: 'qris', name: 'QRIS', provider: 'manual', kind: 'qris', qris: ownCode },
      { code: 'cod', name: 'Bayar di tempat (COD)', provider: 'manual', kind: 'cash' },
      { code: 'sandbox', name: 'Gateway uji coba', provider: 'sandbox' }],
    shipping_options: [{ name: 'JNE REG', fee: 18000, address_required: true, free_from: 300000 }, { name: 'Ambil di toko', fee: 0 }],
  });
}

async function order(name, more) {
  return (await api('POST', '/v1/orders', {
    items: [{ type: 'product', slug: 'kopi-gayo', quantity: 2 }, { type: 'product', slug: 'teh-melati', quantity: 1 }],
    buyer: { name, phone: '0812 3456 7890' }, payment_method: 'bca',
    shipping: { address, method: 'JNE REG' }, ...more })).order;
}

const approve = (o) => api('POST', `/v1/orders/${o.id}/approve`, {});

// report says for a buyer that they have paid.
async function report(o) {
  const buyer = await visitor({ ...phone, javaScriptEnabled: false });
  await buyer.goto(o.checkout_url);
  const folded = buyer.locator('#claim summary');
  if (await folded.count()) await folded.click();
  await buyer.click(act('claim'));
  await buyer.context().close();
}

// Taps: what a thumb does. A text is typed into the field that has the focus.
let page, taps;
const tap = async (what) => {
  taps++;
  await page.locator(what).locator('visible=true').first().tap();
};
const type = async (field, text) => {
  await tap(field);
  await page.keyboard.insertText(text);
};
const choose = (field, label) => tap(`label:has(${field}):has-text("${label}")`);

async function counted(what, most, story) {
  await page.goto(url + '/dashboard');
  taps = 0;
  await story();
  console.log(`${what}: ${taps} taps, ${most} at most`);
  if (taps > most) wrong.push(`${what} takes ${taps} taps, and not ${most}`);
}

const done = () => page.locator('[role=status]').waitFor();

// look judges the page that is shown. axe needs scripts, so a copy of the page is judged.
let copy;
async function look(name) {
  copy ??= await visitor(phone);
  const body = await page.evaluate(() => { // what was typed and chosen, too
    document.querySelectorAll('input, textarea').forEach((e) => {
      if (e.matches('textarea')) e.textContent = e.value;
      else if (e.matches('[type=radio], [type=checkbox]')) e.toggleAttribute('checked', e.checked);
      else e.setAttribute('value', e.value);
    });
    return '<!doctype html>' + document.documentElement.outerHTML;
  });
  await copy.unroute(url + '/copy');
  await copy.route(url + '/copy', (route) => route.fulfill({ body, contentType: 'text/html' }));
  await copy.goto(url + '/copy');
  await judge(copy, 'day-' + name);
}

async function ownersDay() {
  await page.goto(url + '/dashboard/login');
  await look('sign-in');
  await page.fill('[name=email]', 'owner@example.id');
  await page.fill('[name=password]', store.owner_password);
  await page.click(act('sign-in'));

  await counted('an order from a chat', 10, async () => {
    await tap('a[href^="/dashboard/orders/new"]');
    await type('[name="items[0].title"]', 'Kopi Gayo 250 g');
    taps++; // on the suggestion
    await type('[name="items[0].quantity"]', '2');
    await type('[name=name]', 'Siti Aminah');
    await type('[name=phone]', '0812 3456 7890');
    await choose('[name=shipping]', 'JNE REG');
    await type('[name=address]', address);
    await choose('[name=payment_method]', 'Transfer BCA');
    await look('new-order-filled');
    await tap(act('order'));
    await page.waitForURL(/orders\/[0-9a-f-]{36}/);
  });
  await look('order-made');
  const { orders: [made] } = await api('GET', '/v1/orders?limit=1');
  assert.deepEqual([made.status, made.amount, made.shipping_fee, made.shipping.address, made.payment_method],
    ['pending', 188000, 18000, address, 'bca']);

  await report(made);
  await page.goto(url + '/dashboard');
  await look('desk-reported');
  await counted('an approval', 2, async () => {
    await tap('.todo a:has-text("Siti Aminah")');
    await tap(act('approve'));
    await done();
  });
  await look('order-approved');

  await counted('undoing a wrong approval', 2, async () => {
    await tap('a:has-text("Siti Aminah")');
    await tap(act('undo'));
    await done();
  });
  await look('order-undone');
  assert.equal((await api('GET', `/v1/orders/${made.id}`)).order.status, 'awaiting_verification');
  await approve(made);

  await counted('shipping with a number and telling the buyer', 6, async () => {
    await tap('.todo a:has-text("Siti Aminah")');
    await type('[name=carrier]', 'JNE'); // which is there for the next parcel
    await type('[name=tracking_number]', 'JP0123456789012');
    await tap(act('ship'));
    await done();
    taps++; // It leads to WhatsApp.
    const link = await page.locator('a[href^="https://wa.me/6281234567890?text="]').first().getAttribute('href');
    assert.match(decodeURIComponent(link), /JNE.*JP0123456789012/s);
    taps++; // "Send" in WhatsApp
  });
  await look('order-shipped');

  await counted('correcting an address', 4, async () => {
    await tap('a:has-text("Siti Aminah")');
    await tap('#correct summary');
    await type('#correct [name=address]', ', pagar hijau');
    await look('order-correcting');
    await tap(act('correct'));
    await done();
  });
  assert.match((await api('GET', `/v1/orders/${made.id}`)).order.shipping.address, /pagar hijau/);

  const expired = await order('Rina Wijaya', { payment_method: 'sandbox' });
  await sandbox(expired, 'expired');
  await counted('copying an expired order', 3, async () => {
    await tap('a:has-text("Rina Wijaya")');
    await tap(act('copy'));
    await page.waitForURL(/from=/);
    await look('copy');
    await tap(act('order'));
    await page.waitForURL(/orders\/[0-9a-f-]{36}/);
  });
}

// thirtySlips packs thirty orders from one printed list: a sheet each, and no way to a pay page.
async function thirtySlips() {
  const packed = [];
  for (let i = 0; i < 30; i++) {
    const o = await order(`Pembeli ${i} Siti Aminah Rahayu Kusumawardani`, { note: 'Jangan dilipat.' });
    await approve(o);
    packed.push(o.payment_reference);
  }
  await page.goto(url + '/dashboard');
  await look('desk-thirty');
  await page.click('a[href="/dashboard/orders/slips"]');
  await look('slips');
  await page.emulateMedia({ media: 'print' });
  const printed = await page.pdf({ format: 'A4' });
  await page.emulateMedia({ media: 'screen' });
  const sheets = execFileSync('pdftotext', ['-layout', '-', '-'], { input: printed, encoding: 'utf8' }).split('\f').slice(0, -1);
  const onSheets = sheets.map((text) => packed.filter((reference) => text.includes(reference)));
  assert.deepEqual(onSheets, packed.map((reference) => [reference]), 'each slip is on a sheet of its own, in the order of the list');
  for (const text of sheets) {
    assert.match(text, /Jl\. Melati 5 RT 02\/RW 07[\s\S]*Bandung 40132/);
    assert.match(text, /2 × Kopi Gayo 250 g/);
    assert.doesNotMatch(text, /pay\/|http|Cetak/, 'a slip leads nowhere');
  }
}

// everyState looks at what an order's page, and each form, show in the states that a day does not bring.
async function everyState() {
  const states = {};
  states.confirmed = await order('Dewi', { payment_method: 'cod' });
  await report(states.confirmed);
  states.collect = await order('Citra', { payment_method: 'cod' });
  await report(states.collect);
  await api('POST', `/v1/orders/${states.collect.id}/ship`, { carrier: 'GoSend' });
  states.canceled = await order('Agus');
  await api('POST', `/v1/orders/${states.canceled.id}/cancel`, {});
  states.refunded = await order('Rina');
  await approve(states.refunded);
  await api('POST', `/v1/orders/${states.refunded.id}/refund`, {});
  states.other = await sandbox(await order('Hadi', { payment_method: 'sandbox' }), 'other');
  states.expired = await sandbox(await order('Joko', { payment_method: 'sandbox' }), 'expired');
  states.open = await sandbox(await order('Lina', { payment_method: 'sandbox' }));
  await wait(6000); // until the gateway was asked
  const pages = Object.entries(states).map(([name, o]) => [name, `/dashboard/orders/${o.id}`]);
  pages.push(['list', '/dashboard?status=paid&from=2026-01-01&to=2099-12-31'], ['nothing', '/dashboard?q=tidak+ada']);
  for (const name of ['shipping', 'shop', 'account', 'payments', 'catalog', 'developers', 'catalog/product', 'catalog/bundle',
    'catalog/product?slug=kopi-gayo', 'payments/method?code=bca', 'payments/method?code=qris',
    'payments/method?provider=manual&kind=qris', 'shop/poster']) pages.push([name, '/dashboard/' + name]);
  await saveKey();
  pages.push(['trial-new', await trial()], ['trial-page', await trial('page')], ['trial-closed', await trial('page', 'close')]);
  pages.push(['endpoint', await endpoint('developers', 'add-endpoint', { url: url + '/webhook' })], ['phone', await endpoint('account', 'add-phone')]);

  for (const { name: way, ...how } of ways) {
    const visit = await visitor({ ...how, storageState: await page.context().storageState() });
    for (const [name, path] of pages) {
      await visit.goto(url + path);
      await judge(visit, `${way}-${name.replaceAll(/\W/g, '-')}`);
    }
    await visit.context().close();
  }
}

// saveKey saves a sandbox key of a gateway.
async function saveKey() {
  await page.goto(url + '/dashboard/payments');
  await page.click('#save-gateway summary');
  await page.selectOption('#save-gateway [name=provider]', 'midtrans');
  await page.selectOption('[name=mode]', 'sandbox');
  await page.fill('[name=secret_key]', 'SB-Mid-server-of-a-check');
  await page.click(act('save-gateway'));
  await done();
  await look('gateway');
}

// trial tries the gateway, and returns the page of what came of it.
async function trial(opened, closed) {
  await page.goto(url + '/dashboard/payments');
  await page.click(act('try'));
  await page.waitForURL('**/trial?order=*');
  const { pathname, search } = new URL(page.url());
  if (opened) await fetch(`${url}/pay/${page.url().match(/[0-9a-f-]{36}/)[0]}/go`, { redirect: 'manual' });
  if (closed) await page.click(act(closed));
  return pathname + search;
}

// endpoint adds an address for webhooks, which refuses them, or a phone. It returns its page.
async function endpoint(where, button, fields = {}) {
  await page.goto(`${url}/dashboard/${where}`);
  for (const [name, value] of Object.entries(fields)) await page.fill(`[name=${name}]`, value);
  await page.click(act(button));
  await page.waitForURL('**/endpoints/*');
  await look(button);
  if (where === 'developers') await page.click(act('ping'));
  return new URL(page.url()).pathname;
}

// refusals looks at forms that were refused.
async function refusals() {
  await page.goto(url + '/dashboard/orders/new');
  await page.fill('[name="items[0].title"]', 'Kopi Toraja 250 g');
  await page.fill('[name="items[0].quantity"]', '9');
  await page.fill('[name=name]', 'Budi');
  await page.check('[name=payment_method][value=bca]');
  await page.click(act('order'));
  await look('order-refused');
  await page.goto(url + '/dashboard/catalog/product?slug=teh-melati');
  await page.fill('[name=price]', 'mahal');
  await page.click(act('save'));
  await look('product-refused');
}

// keyboard makes an order without a pointer.
async function keyboard() {
  await page.goto(url + '/dashboard/orders/new');
  const reach = async (name) => {
    for (let i = 0; i < 60; i++) {
      await page.keyboard.press('Tab');
      if (await page.evaluate((name) => document.activeElement.name === name, name)) return;
    }
    throw new Error(`no key leads to ${name}`);
  };
  await reach('items[0].title');
  await page.keyboard.insertText('Teh Melati 100 g');
  await reach('name');
  await page.keyboard.insertText('Putri');
  await reach('shipping');
  await page.keyboard.press('ArrowDown');
  await reach('payment_method');
  await page.keyboard.press('Space');
  await page.keyboard.press('Enter');
  await page.waitForURL(/orders\/[0-9a-f-]{36}/);
}

// sandbox opens the page at which a test order is paid, and presses a button there.
async function sandbox(o, button) {
  const buyer = await visitor(phone);
  await buyer.goto(o.checkout_url);
  await buyer.click(act('pay'));
  if (button) await Promise.all([buyer.waitForNavigation(), buyer.click(act(button))]);
  await buyer.context().close();
  return o;
}

await run(async () => {
  await openShop();
  page = await visitor({ ...phone, javaScriptEnabled: false });
  await ownersDay();
  await refusals();
  await keyboard();
  await thirtySlips();
  await everyState();
});
