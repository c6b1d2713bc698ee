import { createHmac, timingSafeEqual } from "node:crypto";

export function verify(secret, header, body) { // body: a Buffer, as from express.raw()
  const [timestamp, ...signatures] = (header ?? "").split(",");
  const t = Number(timestamp.replace("t=", ""));
  if (!(Math.abs(Date.now() / 1000 - t) <= 300)) return false;
  const want = Buffer.from("v1=" + createHmac("sha256", secret).update(`${t}.`).update(body).digest("hex"));
  return signatures.map((s) => Buffer.from(s)).some((s) => s.length === want.length && timingSafeEqual(s, want));
}
