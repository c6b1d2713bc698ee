// Takes the pictures of the owner's pages for docs/shop.md:
//
//	node pictures.mjs PROGRAM docs/pictures
import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import { act, command, enter, freePort, run, shots, start, visitor } from './kit.mjs';

await run(async () => {
  const port = await freePort(), url = `http://127.0.0.1:${port}`;
  command('store', 'add', '-name', 'Kopi Kita', '-email', 'owner@example.id', '-contact', '0812 3456 7890');
  const { key } = command('key', 'add', '-name', 'pictures', '-scope', 'manage');
  await start(port, 'serve', '-addr', `127.0.0.1:${port}`, '-public-url', url, '-webhook-allow-private');
  const api = async (method, path, body) => {
    const answer = await fetch(url + path, { method, headers: { Authorization: `Bearer ${key}` }, body: JSON.stringify(body) });
    assert.ok(answer.ok, `${method} ${path}`);
    return (await answer.json()).data;
  };
  const page = await visitor({ locale: 'id-ID', viewport: { width: 360, height: 640 }, isMobile: true, hasTouch: true });
  await enter(page, command('store', 'password').sign_in);
  const picture = async (name, path) => {
    await page.goto(url + path);
    await page.screenshot({ path: `${shots}/${name}.png` });
  };

  await api('PUT', '/v1/catalog', {
    products: [{ slug: 'kopi-gayo', title: 'Kopi Gayo 200 g', price: 85000 }, { slug: 'dripper-v60', title: 'Dripper V60', price: 120000 }],
    payment_methods: [{ code: 'bca', name: 'Transfer BCA', provider: 'manual', kind: 'transfer', accounts: [{ bank: 'BCA', number: '1234567890' }] }],
  });
  await picture('steps', '/dashboard');

  await api('PUT', '/v1/catalog', { shipping_options: [{ name: 'JNE REG', fee: 18000, address_required: true }] });
  command('store', 'set', '-shop', 'open');
  const phone = createServer((_, answer) => answer.end()).listen(await freePort(), '127.0.0.1').unref();
  await page.goto(url + '/dashboard/account');
  await page.fill('[name=server]', `http://127.0.0.1:${phone.address().port}`);
  await page.click(act('add-phone'));
  await page.waitForURL('**/endpoints/*');

  const order = async (name, street) => (await api('POST', '/v1/orders', {
    items: [{ type: 'product', slug: 'kopi-gayo', quantity: 2 }], buyer: { name, phone: '0812 3456 7890' }, payment_method: 'bca',
    shipping: { address: `${street}\nCoblong, Bandung 40132`, method: 'JNE REG' }, shipping_fee: 18000 })).order;
  for (const [name, street] of [['Siti Aminah', 'Jl. Dago 10'], ['Budi Santoso', 'Jl. Braga 7']]) await api('POST', `/v1/orders/${(await order(name, street)).id}/approve`, {});
  await page.goto((await order('Dewi Lestari', 'Jl. Riau 3')).checkout_url);
  await page.click('#claim summary');
  await page.click(act('claim'));
  await picture('desk', '/dashboard');
});
