// Opens a shop in a browser as an owner does on the first day, without a terminal and without scripts, then looks at every
// page that the dashboards link to: in both languages, on a phone and on a desk, in light and in dark, with axe-core.
import assert from 'node:assert/strict';
import { act, command, enter, freePort, look, onOneSheet, run, see, start, visitor, ways, wrong } from './kit.mjs';

// firstDay opens a shop on a phone: a product, a bank account, a contact, an order for a buyer in a chat, its payment.
async function firstDay(url, store) {
  const phone = { locale: 'id-ID', viewport: { width: 360, height: 740 }, javaScriptEnabled: false };
  const page = await visitor(phone);
  await page.goto(url + '/dashboard');
  await page.fill('[name=email]', 'owner@example.id');
  await page.fill('[name=password]', 'bukan kata sandinya');
  await page.click(act('sign-in'));
  await see(page, 'Email atau kata sandi salah');
  await page.fill('[name=email]', 'owner@example.id');
  await page.fill('[name=password]', store.owner_password);
  await page.keyboard.press('Enter');
  await see(page, 'Mulai di sini');

  const photo = { name: 'kopi.jpg', mimeType: 'image/jpeg', buffer: await page.screenshot({ type: 'jpeg' }) };
  await page.click('a[href^="/dashboard/catalog/product"]');
  await page.fill('[name=title]', 'Kopi Gayo 250 g');
  await page.fill('[name=price]', 'Rp 85.000');
  await page.setInputFiles('[name=picture]', photo);
  await Promise.all([page.waitForNavigation(), page.click(act('save'))]);
  await page.goto(url + '/dashboard/payments');
  await page.click('a[href$="kind=transfer"]');
  await page.fill('[name=name]', 'Transfer BCA');
  await page.fill('[name="accounts[0].bank"]', 'BCA');
  await page.fill('[name="accounts[0].number"]', '1234567890');
  await page.fill('[name="accounts[0].holder"]', 'Kopi Kita');
  await page.check('[name=unique_code]');
  await Promise.all([page.waitForNavigation(), page.click(act('save'))]);
  await page.goto(url + '/dashboard/account');
  await page.fill('[name=contact]', '0812 3456 7890');
  await Promise.all([page.waitForNavigation(), page.click(act('save'))]);
  await page.goto(url + '/dashboard/shop');
  await page.check('[name=shop][value=open]');
  await Promise.all([page.waitForNavigation(), page.click(act('save'))]);
  await see(page, 'Kirim lewat WhatsApp');
  await page.click('text=Lihat toko');
  await page.locator('.ware img').waitFor(); // The photo is there.

  await page.goto(url + '/dashboard');
  await page.click('a[href^="/dashboard/orders/new"]');
  await page.fill('[name="items[0].title"]', 'Kopi Gayo 250 g');
  await page.fill('[name="items[0].quantity"]', '2');
  await page.getByLabel('Nama pembeli').fill('Siti');
  await page.click(act('order'));
  await page.waitForURL(/orders\/[0-9a-f-]{36}/);
  const order = page.url().split('#')[0];
  const payLink = await page.locator('a[href*="/pay/"]').first().getAttribute('href');

  const buyer = await visitor(phone);
  await buyer.goto(payLink);
  await see(buyer, 'Rp170.');
  await buyer.locator('input[value="1234 5678 90"]').waitFor();
  await buyer.click('#claim summary');
  await buyer.fill('[name=bank]', 'Mandiri');
  await buyer.click(act('claim'));
  await see(buyer, 'Pembayaran Anda sedang dicek toko');

  await page.goto(order);
  await see(page, 'Mandiri');
  await see(page, 'dengan kode unik');
  assert.ok(await page.evaluate(() => document.scrollingElement.scrollWidth <= innerWidth), 'the order to approve is too wide for a phone');
  await page.click(act('approve'));
  await page.goto(order);
  await see(page, 'Lunas');
  await buyer.reload();
  await see(buyer, 'Pembayaran diterima');
  await page.locator('summary', { hasText: /kembali/ }).first().click();
  await page.click(act('refund'));
  await buyer.reload();
  await see(buyer, 'dikembalikan');
  await page.context().close();
  await buyer.context().close();
}

// linked are the pages that an owner reaches, two of each kind: it follows every link but those that lead elsewhere.
async function linked(page, url) {
  const seen = new Map(), addresses = [url + '/dashboard'];
  for (let i = 0; i < addresses.length; i++) {
    await page.goto(addresses[i]);
    const found = await page.$$eval('a[href]', (all) => all.map((a) => a.href.split('#')[0]));
    for (const address of found) {
      if (!address.startsWith(url + '/') || /\.csv|\.md|openapi|lang=|[?&]language=|\/go$|\/sandbox\//.test(address) || addresses.includes(address)) continue;
      const kind = address.replace(/[0-9a-f-]{36}/, 'ID').replace(/(after|before|q|code|slug|key)=[^&]*/, '$1');
      seen.set(kind, (seen.get(kind) ?? 0) + 1);
      if (seen.get(kind) <= 2) addresses.push(address);
    }
  }
  return addresses;
}

// parcels makes three orders that have to be sent, and one that was sent.
async function parcels(api) {
  const { products } = await api('GET', '/v1/products?type=product');
  const { payment_methods: methods } = await api('GET', '/v1/payment-methods');
  await api('PUT', '/v1/catalog', { shipping_options: [
    { name: 'JNE REG', fee: 18000, address_required: true, free_from: 300000 }, { name: 'Ambil di toko', fee: 0 }] });
  for (const name of ['Siti Aminah Rahayu Kusumawardani', 'Budi', 'Citra', 'Dewi']) {
    const { order } = await api('POST', '/v1/orders', {
      items: [{ type: 'product', slug: products[0].slug, quantity: 1 }, { type: 'product', slug: products[1].slug, quantity: 1 }],
      buyer: { name, phone: '0812 3456 7890' }, payment_method: methods.find((m) => m.kind === 'transfer').code,
      shipping: { address: 'Jl. Melati 5 RT 02/RW 07, Kelurahan Sukamaju\nCoblong, Bandung 40132', method: 'JNE REG' } });
    await api('POST', `/v1/orders/${order.id}/approve`, {});
    if (name === 'Dewi') await api('POST', `/v1/orders/${order.id}/ship`, { carrier: 'JNE', tracking_number: 'JP0123456789012' });
  }
}

// slips are printed one on each sheet.
async function slips(page, address) {
  await page.goto(address);
  await page.emulateMedia({ media: 'print' });
  const sheets = (await page.pdf({ format: 'A4' })).toString('latin1').match(/\/Type\s*\/Page\b/g).length;
  if (sheets !== 3) wrong.push(`three slips are printed on ${sheets} sheets`);
  await page.emulateMedia({ media: 'screen' });
}

await run(async () => {
  const demoPort = await freePort(), port = await freePort();
  const url = `http://127.0.0.1:${port}`;
  const demo = await start(demoPort, 'demo', '-addr', `127.0.0.1:${demoPort}`);
  const key = demo.match(/so_[A-Za-z0-9_-]{43}/)[0];
  const demoLink = demo.match(/http\S+\/dashboard\/enter\/\S+/)[0];
  const demoURL = new URL(demoLink).origin;
  const newcomer = command('store', 'add', '-name', 'Toko Baru', '-email', 'owner@example.id');
  await start(port, 'serve', '-addr', `127.0.0.1:${port}`, '-public-url', url);

  const api = async (method, path, body) => {
    const answer = await fetch(demoURL + path, { method, headers: { Authorization: `Bearer ${key}` }, body: body && JSON.stringify(body) });
    const { data } = await answer.json();
    assert.ok(answer.ok, `${method} ${path}`);
    return data;
  };
  await parcels(api);
  const { orders } = await api('GET', '/v1/orders?limit=50');
  assert.ok(new Set(orders.map((o) => o.status)).size >= 5, 'the demo has orders in every state');

  const owner = await visitor({ locale: 'id-ID' });
  await enter(owner, demoLink);
  const pages = await linked(owner, demoURL);
  const state = await owner.context().storageState();
  console.log(`${pages.length} pages, ${ways.length} ways to see each`);

  const empty = command('store', 'password');
  const fresh = await visitor({ locale: 'id-ID' });
  await enter(fresh, empty.sign_in);
  const emptyPages = ['', '/catalog', '/payments', '/developers', '/account', '/orders/new', '/shipping', '/shop', '/catalog/product?first=1',
    '/payments?first=1', '/account?first=1', '/shipping?first=1'].map((p) => url + '/dashboard' + p);
  const emptyState = await fresh.context().storageState();

  for (const { name, ...way } of ways) {
    const page = await visitor({ ...way, storageState: state });
    for (const address of pages) await look(page, address, name);
    const first = await visitor({ ...way, storageState: emptyState });
    for (const address of emptyPages) await look(first, address, 'empty-' + name);
    const buyer = await visitor(way);
    for (const o of orders) await look(buyer, o.checkout_url, 'buyer-' + name);
    await look(buyer, demoURL + '/dashboard', 'stranger-' + name);
    if (way.viewport.width > 800) await slips(page, demoURL + '/dashboard/orders/slips');
    if (way.viewport.width > 800) await onOneSheet(buyer, orders.find((o) => o.status === 'paid').checkout_url);
    for (const p of [page, first, buyer]) await p.context().close();
  }

  await firstDay(url, { ...newcomer, ...empty });
});
