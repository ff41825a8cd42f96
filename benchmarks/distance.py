"""nginx in front of the S3 server: distance in time and bandwidth per connection, and TLS.

Debian's nginx-light with libnginx-mod-http-lua.  The kernel here has no netem.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.support.processes import free_port, running, wait_until

_TEMPLATE = """
load_module /usr/lib/nginx/modules/ndk_http_module.so;
load_module /usr/lib/nginx/modules/ngx_http_lua_module.so;
worker_processes {workers}; daemon off; pid {directory}/pid; error_log {directory}/error.log;
events {{ worker_connections 4096; }}
http {{
  log_format counted '$request_method $status $body_bytes_sent $request_uri $http_range '
    '$http_x_amz_copy_source $content_length $msec $request_time';
  access_log {access} counted;
  client_body_temp_path {directory}/body; proxy_temp_path {directory}/proxy;
  fastcgi_temp_path {directory}/f; uwsgi_temp_path {directory}/u; scgi_temp_path {directory}/s;
  keepalive_requests 1000000; client_max_body_size 0;
  upstream s3 {{ server {upstream}; keepalive 256; }}
  server {{
    listen 127.0.0.1:{port}{ssl};
    {certificate}
    location / {{
      {sleep}
      limit_rate {rate};
      proxy_pass http://s3; proxy_http_version 1.1;
      proxy_set_header Connection ""; proxy_set_header Host $http_host;
      proxy_buffers 16 64k; proxy_max_temp_file_size 0; proxy_request_buffering off;
    }}
  }}
}}
"""


#: A copy of a range says how much it copies; one of a whole object does not.
_SLOW_COPIES = """
if ngx.var.http_x_amz_copy_source then
  local first, last = string.match(ngx.var.http_x_amz_copy_source_range or "", "(%d+)-(%d+)")
  ngx.sleep((first and last - first + 1 or {whole}) / {rate})
end
"""


class Copies(NamedTuple):
    """Attributes: bytes that the server copies in a second, for each request; of an object copied whole, its size."""

    bytes_per_s: float
    whole: int


class Front:
    """A running nginx."""

    def __init__(self, url: str, access: Path) -> None:
        self.url = url
        self._access = access

    def requests(self) -> list[str]:
        """One line per request that was answered since the start."""
        return self._access.read_text(encoding="utf-8").splitlines()


@contextlib.contextmanager
def nginx(
    upstream: str,
    directory: Path,
    *,
    delay_s: float = 0.0,
    rate: str = "0",
    tls: str | None = None,
    workers: int = 1,
    copies: Copies | None = None,
) -> Iterator[Front]:
    """nginx in front of `upstream` (host:port).

    Args:
        delay_s: before each request is forwarded.
        rate: bytes per second and connection, as nginx writes it ("90m"); "0" for no limit.
        tls: PEM file with key and certificate; plain http without.
        workers: processes of nginx; one of them ends TLS at about 1 GB/s.
        copies: how long copies take besides; a local server copies by reference.
    """
    directory.mkdir(parents=True)
    port, access = free_port(), directory / "access.log"
    slow_copies = _SLOW_COPIES.format(rate=copies.bytes_per_s, whole=copies.whole) if copies else ""
    sleep = f"access_by_lua_block {{ ngx.sleep({delay_s}) {slow_copies} }}" if delay_s or copies else ""
    certificate = f"ssl_certificate {tls}; ssl_certificate_key {tls};" if tls else ""
    text = _TEMPLATE.format(
        directory=directory, access=access, upstream=upstream, port=port, ssl=" ssl" if tls else "",
        certificate=certificate, sleep=sleep, rate=rate, workers=workers,
    )  # fmt: skip
    config = directory / "nginx.conf"
    config.write_text(text, encoding="utf-8")
    with running(["nginx", "-c", str(config), "-e", str(directory / "start.log")], directory / "nginx.log"):
        wait_until((directory / "pid").exists, 10, "nginx starting")
        yield Front(f"{'https' if tls else 'http'}://127.0.0.1:{port}", access)
