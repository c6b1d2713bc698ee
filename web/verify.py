import hashlib, hmac, re, time

def verify(secret: str, header: str, body: bytes) -> bool:
    timestamp, *signatures = (header or "").split(",")
    t = re.fullmatch("t=([0-9]{1,12})", timestamp)
    if not t or abs(time.time() - int(t[1])) > 300:
        return False
    want = "v1=" + hmac.new(secret.encode(), b"%d." % int(t[1]) + body, hashlib.sha256).hexdigest()
    return any(hmac.compare_digest(given.encode(), want.encode()) for given in signatures)
