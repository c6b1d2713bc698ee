// Orders in a shop as a buyer does on a cheap phone, without scripts and without an account, and looks at every page that
// buyers meet: in both languages, on a phone and on a desk, in light and in dark, with axe-core and by keyboard.
import assert from 'node:assert/strict';
import { act, command, judge, look, onOneSheet, run, see, visitor, walk, ways, wrong } from './kit.mjs';
import { choose, fill, goods, home, open, order, phone, press, shop, siti } from './shop.mjs';

// way is a buyer's, on a slow line, from the link to the code: it says how long the phone waits and what comes over the
// line, without pictures.
async function way({ url }) {
  const page = await visitor({ ...phone, javaScriptEnabled: false });
  const line = await page.context().newCDPSession(page);
  await line.send('Network.enable');
  await line.send('Network.emulateNetworkConditions', { offline: false, latency: 300, downloadThroughput: 400e3 / 8, uploadThroughput: 400e3 / 8 });
  const kinds = new Map();
  let bytes = 0, waited = 0;
  line.on('Network.responseReceived', ({ requestId, type }) => kinds.set(requestId, type));
  line.on('Network.loadingFinished', ({ requestId, encodedDataLength }) => { if (kinds.get(requestId) !== 'Image') bytes += encodedDataLength; });
  const timed = async (step) => {
    const began = Date.now();
    await step();
    waited += Date.now() - began;
  };
  await timed(() => page.goto(url + shop));
  await page.fill('[name="product.kopi-gayo"]', '2');
  await timed(() => press(page, act('checkout')));
  await page.check('[value="15000 Kurir Bandung"]');
  await fill(page, { ...home, ...siti });
  await page.check('[value="0 qris"]');
  await timed(() => press(page, act('order')));
  await see(page, 'Jangan sampai halaman ini hilang');
  assert.ok(await page.locator('img[src$="/qris.png"]').evaluate((e) => e.complete && e.naturalWidth > 200), 'the code is there');
  console.log(`from the link to the code: ${(bytes / 1024).toFixed(1)} KB without pictures, ${(waited / 1000).toFixed(1)} s of waiting`);
  if (bytes > 120 * 1024) wrong.push(`from the link to the code ${bytes} bytes are transferred`);
  if (waited > 30_000) wrong.push(`from the link to the code a buyer waits for ${waited} ms`);

  await page.click('#claim summary');
  await press(page, '#claim button');
  await see(page, 'Pembayaran Anda sedang dicek toko');
  await page.context().close();
}

// states makes an order in each state that its buyer can see.
async function states({ url, api, owner }) {
  const page = await visitor(phone);
  const made = {};
  const id = (address) => address.match(/[0-9a-f-]{36}/)[0];
  const place = async (name, how) => { made[name] = await order(page, url, { buyer: { ...siti, name: `${siti.name} ${name}` }, ...how }); };
  await place('first-qris');
  await place('first-transfer', { method: '0 transfer-bca' });
  await place('first-cash', { method: '5000 cod' });
  await place('pickup', { shipping: '0 Ambil sendiri', cart: { 'product.teh-kayu-aro': '1', 'product.kopi-gayo': '1', 'bundle.hemat': '1' } });
  for (const name of ['reported', 'paid', 'shipped', 'canceled', 'refunded']) await place(name);
  for (const name of ['reported', 'paid', 'shipped', 'refunded']) {
    await page.goto(made[name]);
    await page.click('#claim summary');
    await press(page, '#claim button');
    made[name] = page.url();
  }
  for (const name of ['paid', 'shipped', 'refunded']) await api('POST', `/v1/orders/${id(made[name])}/approve`, {});
  await api('POST', `/v1/orders/${id(made.shipped)}/ship`, { carrier: 'JNE', tracking_number: 'JP0123456789012' });
  await api('POST', `/v1/orders/${id(made.refunded)}/refund`, {});
  await page.goto(made.canceled);
  await page.click('#cancel summary');
  await press(page, act('cancel'));
  made.canceled = page.url();

  const sandbox = async (name, button, after) => {
    const { order: o } = await api('POST', '/v1/orders', { items: [{ type: 'product', slug: 'kopi-gayo', quantity: 1 }], buyer: siti, payment_method: 'sandbox' });
    made[name] = o.checkout_url;
    if (!button) return;
    await page.goto(`${o.checkout_url}/go`);
    await press(page, act(button));
    await see(page, after);
  };
  await sandbox('gateway');
  await sandbox('denied', 'denied', 'ditolak');
  await sandbox('expired', 'expired', 'Waktu pembayaran habis');
  made.back = made.gateway + '?back=1';

  await owner.goto(url + '/dashboard/orders/new');
  await fill(owner, { 'items[0].title': 'Kopi Gayo 200 g', name: 'Rina' });
  await owner.check('[name=shipping][value="Kurir Bandung"]');
  await owner.check('[name=payment_method][value=qris]');
  await press(owner, act('order'));
  made.address = await owner.locator('a[href*="/pay/"]').first().getAttribute('href');
  await page.context().close();
  return made;
}

// refused looks at the checkout as it is shown again.
async function refused(page, { url, api }, name) {
  await choose(page, url, { 'product.kopi-gayo': '2', 'product.kopi-toraja': '2' });
  await page.evaluate(() => document.querySelectorAll('[required]').forEach((e) => e.removeAttribute('required')));
  await fill(page, { phone: '0812', postcode: '401' });
  await page.check('[value$=" Kurir Bandung"]');
  await press(page, act('order'));
  await judge(page, name + ' checkout-refused');

  await fill(page, { ...home, ...siti });
  await page.check('[value="0 qris"]');
  await api('PUT', '/v1/catalog', { products: [{ slug: 'kopi-gayo', title: 'Kopi Gayo 200 g', price: 90000 }, { slug: 'kopi-toraja', title: goods[1][1], price: 95000, stock: 1 }] });
  await press(page, act('order'));
  await judge(page, name + ' checkout-sold');
  await page.fill('[name="product.kopi-toraja"]', '1');
  await press(page, act('order'));
  await judge(page, name + ' checkout-price');
  await api('PUT', '/v1/catalog', { products: [{ slug: 'kopi-gayo', title: 'Kopi Gayo 200 g', price: 85000 }, { slug: 'kopi-toraja', title: goods[1][1], price: 95000, stock: 3 }] });

  await page.goto(url + shop);
  await press(page, act('checkout'));
  await judge(page, name + ' shop-nothing');
}

await run(async () => {
  const it = await open();
  const { url, api, owner } = it;
  await way(it);
  const made = await states(it);
  const cart = 'product.kopi-gayo=2&product.kopi-toraja=1';
  const pages = [shop, `${shop}?${cart}`, `${shop}?q=campuran&page=2&${cart}`, `${shop}?q=tidak+ada`, `${shop}?page=3`, `${shop}?product.lama=1`,
    `${shop}/product/kopi-toraja`, `${shop}/product/kopi-gayo?${cart}`, `${shop}/product/dripper-v60`, `${shop}/bundle/hemat`, `${shop}/checkout?${cart}`,
    `${shop}/checkout?product.panduan=1`, `${shop}/checkout`, '/shop/tidak-ada'].map((path) => url + path);
  const state = await owner.context().storageState();

  for (const { name, ...way } of ways) {
    const page = await visitor(way);
    const walks = name.startsWith('id') && name.endsWith('light'); // Neither words nor colours change the order.
    for (const address of pages) {
      await look(page, address, name);
      if (walks && address !== url + shop) await walk(page, `${name} ${address}`);
    }
    for (const [what, address] of Object.entries(made)) {
      await page.goto(address);
      await judge(page, `${name} pay-${what}`);
      if (walks && what !== 'back') await walk(page, `${name} pay-${what}`);
    }
    await refused(page, it, name);
    await page.context().close();
  }

  await api('PUT', '/v1/catalog', { payment_methods: [...Array(12)].map((_, i) => (
    { code: `bank-${i}`, name: `Transfer bank nomor ${i}`, provider: 'manual', kind: 'transfer', fee: 500 * i, accounts: [{ bank: 'BRI', number: '1234567890' }] })) });
  const last = await visitor(phone);
  await look(last, `${url}${shop}/checkout?${cart}`, 'many-methods');
  command('store', 'set', '-shop', 'closed');
  await look(last, url + shop, 'closed');
  await look(last, `${url}${shop}/product/kopi-gayo`, 'closed');
  await last.goto(`${url}${shop}/checkout?${cart}`);
  await see(last, 'Toko sedang tutup');
  command('store', 'set', '-shop', 'off');
  await look(last, url + shop, 'off');

  const desk = await visitor({ locale: 'id-ID', viewport: { width: 1280, height: 800 }, storageState: state });
  await look(desk, url + '/dashboard/shop/poster', 'poster');
  await onOneSheet(desk, url + '/dashboard/shop/poster');
});
