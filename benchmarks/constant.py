"""A fast S3 server that answers a constant: nginx, so that its CPU is little beside what is measured.

Names come from a server of keys (`many_keys`), content of any key out of nginx's memory, as 206 with the
ETag that the listing has.  It looks at no signature and no condition.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from benchmarks.many_keys import SIZE, many_keys
from tests.support.processes import free_port, running, wait_until

_TEMPLATE = """
load_module /usr/lib/nginx/modules/ndk_http_module.so;
load_module /usr/lib/nginx/modules/ngx_http_lua_module.so;
worker_processes 1; daemon off; pid {directory}/pid; error_log {directory}/error.log;
events {{ worker_connections 4096; }}
http {{
  log_format counted '$request_method $status $body_bytes_sent $request_uri $http_range';
  access_log {directory}/access.log counted buffer=64k flush=100ms;
  client_body_temp_path {directory}/body; proxy_temp_path {directory}/proxy;
  fastcgi_temp_path {directory}/f; uwsgi_temp_path {directory}/u; scgi_temp_path {directory}/s;
  keepalive_requests 1000000;
  init_by_lua_block {{ content = string.rep("s3mount\\n", {size} / 8) }}
  server {{
    listen 127.0.0.1:{port};
    location ~ ^/{bucket}/?$ {{ proxy_pass http://{names}; proxy_http_version 1.1; }}
    location / {{
      content_by_lua_block {{
        if {delay_s} > 0 then ngx.sleep({delay_s}) end
        ngx.header["ETag"] = '"' .. ngx.md5(string.sub(ngx.var.uri, {skip})) .. '"'
        ngx.header["Content-Length"] = #content
        if ngx.req.get_method() == "GET" then
          ngx.status = 206
          ngx.header["Content-Range"] = "bytes 0-" .. #content - 1 .. "/" .. #content
          ngx.print(content)
        end
      }}
    }}
  }}
}}
"""
BUCKET = "constant"


@contextlib.contextmanager
def constant_server(work: Path, directory: str, n: int, *, delay_s: float = 0.0) -> Iterator[str]:
    """URL of a server with `n` objects of `many_keys.SIZE` bytes in one directory of bucket `BUCKET`.

    Args:
        delay_s: before each GET or HEAD is answered.
    """
    work.mkdir(parents=True)
    port = free_port()
    with many_keys(work / "names", "padded", directory, n) as names:
        text = _TEMPLATE.format(
            directory=work, port=port, names=names, bucket=BUCKET, size=SIZE, delay_s=delay_s, skip=len(BUCKET) + 3,
        )  # fmt: skip
        config = work / "nginx.conf"
        config.write_text(text, encoding="utf-8")
        with running(["nginx", "-c", str(config), "-e", str(work / "start.log")], work / "nginx.log"):
            wait_until((work / "pid").exists, 10, "nginx starting")
            yield f"http://127.0.0.1:{port}"
