// A shop with goods, ways to pay and pictures, and the way of a buyer through it.
import assert from 'node:assert/strict';
import { act, command, enter, freePort, start, visitor } from './kit.mjs';

export const ownCode = '00020101021126610014COM.GO-JEK.WWW01189360091400000000010210G0000000010303UMI51440014ID.CO.QRIS.WWW' +
  '0215ID10200000000010303UMI5204581453033605802ID5909KOPI KITA6007BANDUNG61054011162070703A0163043EC0';
export const shop = '/shop/kopi-kita';
export const phone = { locale: 'id-ID', viewport: { width: 360, height: 640 }, isMobile: true, hasTouch: true };

export const goods = [
  ['kopi-gayo', 'Kopi Gayo 200 g', 85000, { description: 'Biji sangrai sedang, digiling saat dipesan.\nTulis di catatan: biji, halus atau kasar.', stock: 40 }],
  ['kopi-toraja', 'Kopi Toraja Sapan 200 g dengan nama yang panjang sekali sampai tiga baris', 95000, { description: 'Asam segar, cokelat. '.repeat(30), stock: 3 }],
  ['dripper-v60', 'Dripper V60', 120000, { stock: 0 }],
  ['teh-kayu-aro', 'Teh Kayu Aro', 1250000, {}],
  ['panduan', 'Panduan seduh', 0, {}],
];
for (let i = 1; i <= 40; i++) goods.push([`barang-${i}`, `Kopi campuran nomor ${i}, 250 g`, 40000 + 500 * i, { description: i % 2 ? 'Campuran untuk tiap hari.' : '' }]);

// open opens a shop, and returns what the rest has to know of it.
export async function open() {
  const port = await freePort(), url = `http://127.0.0.1:${port}`;
  const added = command('store', 'add', '-name', 'Kopi Kita', '-email', 'owner@example.id', '-contact', '0812 3456 7890', '-test', 'on');
  const { key } = command('key', 'add', '-name', 'check', '-scope', 'manage');
  await start(port, 'serve', '-addr', `127.0.0.1:${port}`, '-public-url', url);
  const { sign_in } = command('store', 'password');
  const api = async (method, path, body) => {
    const answer = await fetch(url + path, { method, headers: { Authorization: `Bearer ${key}` }, body: body && JSON.stringify(body) });
    const { data, error } = await answer.json();
    assert.ok(answer.ok, `${method} ${path} ${JSON.stringify(error)}`);
    return data;
  };
  const manual = (code, name, kind, more) => ({ code, name, provider: 'manual', kind, ...more });
  await api('PUT', '/v1/catalog', {
    products: goods.map(([slug, title, price, more], position) => ({ slug, title, price, position, ...more })),
    bundles: [{ slug: 'hemat', title: 'Paket hemat: Gayo dan Toraja', price: 165000, position: 4, items: [{ slug: 'kopi-gayo', quantity: 1 }, { slug: 'kopi-toraja', quantity: 1 }] }],
    shipping_options: [{ name: 'Ambil sendiri', fee: 0 }, { name: 'Kurir Bandung', fee: 15000, address_required: true, free_from: 300000 },
      { name: 'JNE Jawa', fee: 30000, address_required: true }],
    payment_methods: [
      manual('qris', 'QRIS', 'qris', { qris: ownCode, unique_code: true, position: 1 }),
      manual('transfer-bca', 'Transfer BCA', 'transfer', { position: 2, unique_code: true,
        accounts: [{ bank: 'BCA', number: '1234567890', holder: 'Kopi Kita' }, { bank: 'Mandiri', number: '9870012345678', holder: 'Kopi Kita' }] }),
      manual('cod', 'Bayar di tempat (COD)', 'cash', { fee: 5000, shop: true, position: 3 }),
      manual('gopay', 'GoPay', 'ewallet', { position: 4, min_amount: 300000, accounts: [{ bank: 'GoPay', number: '081234567890', holder: 'Kopi Kita' }] }),
      { code: 'sandbox', name: 'Gateway uji coba', provider: 'sandbox' }],
  });
  command('store', 'set', '-shop', 'open', '-shop-text', 'Jl. Melati 3, Bandung. Buka 08.00–17.00.\nBarang dikirim setiap Senin dan Kamis.');

  const owner = await visitor(phone);
  await enter(owner, sign_in);
  await pictures(owner, url, api);
  return { url, api, owner };
}

// pictures gives most goods a picture: one that was uploaded.
async function pictures(owner, url, api) {
  const drawn = await visitor({ viewport: { width: 900, height: 700 } });
  await drawn.setContent('<body style="margin:0;height:700px;background:radial-gradient(circle at 50% 55%,#3b2115 0 22%,#a87b5c 23% 40%,#d9c3ae 41%)">');
  const buffer = await drawn.screenshot();
  await drawn.context().close();
  await owner.goto(`${url}/dashboard/payments/method?code=qris`);
  await owner.setInputFiles('[name=picture]', { name: 'kopi.png', mimeType: 'image/png', buffer });
  await Promise.all([owner.waitForNavigation(), owner.click('#upload button')]);
  const { payment_methods: methods } = await api('GET', '/v1/catalog?type=payment_method');
  const { image_url } = methods.find((m) => m.code === 'qris');
  assert.ok(image_url, 'the picture was uploaded');
  await api('PUT', '/v1/catalog', { products: goods.filter((_, i) => i % 4 !== 3).map(([slug, title, price]) => ({ slug, title, price, image_url })) });
}

// fill types a buyer's details.
export async function fill(page, details) {
  for (const [name, value] of Object.entries(details)) await page.fill(`[name="${name}"]`, value);
}

export const siti = { name: 'Siti Aminah', phone: '0812-3456-7890' };
export const home = { street: 'Jl. Dago 10 RT 2/3, Dago', district: 'Coblong', city: 'Bandung', postcode: '40132' };

// press presses a button that leads to another page.
export async function press(page, what) {
  await Promise.all([page.waitForNavigation(), page.click(what)]);
}

// choose is the way from the shop's link to the checkout.
export async function choose(page, url, cart) {
  await page.goto(url + shop);
  await fill(page, cart);
  await press(page, act('checkout'));
}

// order goes from the shop's link to the page of an order that waits for its payment.
export async function order(page, url, { cart = { 'product.kopi-gayo': '2' }, shipping = '15000 Kurir Bandung', method = '0 qris', buyer = siti } = {}) {
  await choose(page, url, cart);
  await page.check(`[value="${shipping}"]`);
  assert.equal(await page.isVisible('[name=street]'), !shipping.startsWith('0 '), 'an address is asked for if a parcel is sent');
  if (!shipping.startsWith('0 ')) await fill(page, home);
  await fill(page, buyer);
  await page.check(`[value="${method}"]`);
  await press(page, act('order'));
  return page.url();
}
