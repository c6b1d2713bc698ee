// Lets Lighthouse judge the pages that buyers meet first, as it judges them on a phone. It asks the shop and its goods alone
// what search engines ask: the checkout and the pay page are in no index. Its performance means something only on a machine
// that does nothing else.
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';
import { run, visitor, wrong } from './kit.mjs';
import { open, order, phone, shop } from './shop.mjs';

const resolve = createRequire(process.cwd() + '/').resolve;
const { default: lighthouse } = await import(pathToFileURL(resolve('lighthouse')));
const { launch } = await import(pathToFileURL(resolve('chrome-launcher')));
const least = { performance: 100, accessibility: 100, 'best-practices': 100, seo: 90 };

await run(async () => {
  const { url } = await open();
  const page = await visitor(phone);
  const pay = await order(page, url);
  await page.context().close();
  const cart = 'product.kopi-gayo=2&product.kopi-toraja=1';
  const chrome = await launch({ chromePath: process.env.CHROMIUM ?? '/usr/bin/chromium', chromeFlags: ['--headless', '--no-sandbox', '--disable-gpu'] });
  for (const address of [url + shop, `${url}${shop}/product/kopi-gayo`, `${url}${shop}/checkout?${cart}`, pay]) {
    const isIndexed = !/checkout|pay/.test(address);
    const { lhr } = await lighthouse(address, { port: chrome.port, logLevel: 'error', onlyCategories: Object.keys(least).filter((id) => id !== 'seo' || isIndexed) });
    const scores = Object.values(lhr.categories).map((c) => [c.id, Math.round(100 * c.score)]);
    console.log(address, scores.map(([id, score]) => `${id} ${score}`).join(', '));
    for (const [id, score] of scores) {
      if (score >= least[id]) continue;
      const why = lhr.categories[id].auditRefs.map((r) => lhr.audits[r.id]).filter((a) => a.score !== null && a.score < 1);
      wrong.push(`${address}: ${id} ${score}: ${why.map((a) => `${a.title} (${a.displayValue ?? a.score})`).join(' | ')}`);
    }
  }
  chrome.kill();
});
