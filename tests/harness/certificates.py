"""An authority of a test's own, and certificates by it, made with openssl."""

import subprocess
import time

_CURVE = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]


def _openssl(*words, **options):
    line = ["openssl", *map(str, words)]
    subprocess.run(line, check=True, capture_output=True, text=True, **options)


class Authority:
    """Files in a folder: NAME.crt and NAME.key; its own are called by its name."""

    def __init__(self, folder, name="ca"):
        self.folder, self.name = folder, name
        self.certificate, self.key = folder / f"{name}.crt", folder / f"{name}.key"
        made = ["-keyout", self.key, "-out", self.certificate, "-days", "2"]
        _openssl("req", "-x509", *_CURVE, *made, "-subj", f"/CN={name}")

    def issue(self, name, subject, alternative="", ends=None):
        """A certificate of `subject` (/CN=...), with `alternative` names (URI:..., IP:...); the
        paths of it and of its key. `ends`: when, by time.time(); else in two days."""
        request, key = self.folder / f"{name}.csr", self.folder / f"{name}.key"
        _openssl("req", *_CURVE, "-keyout", key, "-out", request, "-subj", subject)
        extensions = self.folder / f"{name}.ext"
        extensions.write_text(f"subjectAltName={alternative}\n" if alternative else "")
        certificate = self.folder / f"{name}.crt"
        if ends is None:
            by = ["-CA", self.certificate, "-CAkey", self.key, "-CAcreateserial", "-days", "2"]
            _openssl(
                *["x509", "-req", "-in", request, *by, "-extfile", extensions, "-out", certificate]
            )
        else:
            self._issue_until(ends, request, extensions, certificate)
        return certificate, key

    def _issue_until(self, ends, request, extensions, certificate):
        """By `openssl ca`, which knows of seconds."""
        config = self.folder / "ca.conf"
        database = self.folder / "issued.txt"
        database.write_text("")
        config.write_text(
            "[ca]\ndefault_ca = it\n[it]\npolicy = any\ndefault_md = sha256\n"
            f"database = {database}\nnew_certs_dir = {self.folder}\nrand_serial = yes\n"
            "[any]\ncommonName = supplied\n"
        )
        times = [time.strftime("%Y%m%d%H%M%SZ", time.gmtime(at)) for at in (ends - 7200, ends)]
        by = ["-config", config, "-cert", self.certificate, "-keyfile", self.key, "-batch"]
        by += ["-startdate", times[0], "-enddate", times[1], "-notext", "-extfile", extensions]
        _openssl("ca", *by, "-in", request, "-out", certificate)
