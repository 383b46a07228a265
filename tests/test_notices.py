"""Notices reach a real web hook and a real mail server on this machine, carry no number, and block nobody."""

from __future__ import annotations

import contextlib
import email
import http.server
import json
import logging
import re
import smtplib
import socketserver
import threading
import time

import pytest

from abcdp.service.notices import SIGNATURE, TOLD, Mail, Notice, Notices, Watch, WebHook, receivers, signature
from abcdp.service.settings import Notices as Said
from abcdp.service.settings import SettingsError

SECRET = "both sides know this"
ID = "ab" * 16


class Hook(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.got.append((self.path, self.headers[SIGNATURE], body))
        answers = self.server.answers
        self.send_response(answers.pop(0) if answers else 204)
        self.end_headers()

    def log_message(self, *_):
        pass


class MailBox(socketserver.StreamRequestHandler):
    """As much of SMTP as a client needs to hand over one message."""

    def handle(self):
        self.wfile.write(b"220 here\r\n")
        message = None
        for line in self.rfile:
            if message is not None:
                if line == b".\r\n":
                    self.server.got.append(message)
                    message = None
                    self.wfile.write(b"250 taken\r\n")
                else:
                    message += line
                continue
            verb = line[:4].upper()
            if verb == b"DATA":
                message = b""
            self.wfile.write({b"DATA": b"354 go on\r\n", b"QUIT": b"221 bye\r\n"}.get(verb, b"250 fine\r\n"))
            if verb == b"QUIT":
                return


@contextlib.contextmanager
def listening(handler, kind=http.server.ThreadingHTTPServer):
    with kind(("127.0.0.1", 0), handler) as server:
        server.got, server.answers = [], []
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield server
        server.shutdown()


def hook_of(server, path="/hook?to=us"):
    return WebHook(f"http://127.0.0.1:{server.server_address[1]}{path}", SECRET)


def test_a_web_hook_gets_a_signed_notice_without_a_number():
    with listening(Hook) as server:
        notices = Notices([hook_of(server)])
        notices.tell(ID, "clinic", "approved")
        notices.close()
    [(path, signed, body)] = server.got
    assert path == "/hook?to=us"
    assert signed == signature(SECRET, body)
    assert signed != signature("another secret", body)
    assert signed != signature(SECRET, body + b" ")
    text = f"request {ID} of dataset clinic changed to approved"
    assert json.loads(body) == {"request": ID, "dataset": "clinic", "state": "approved", "text": text}
    assert not re.search(r"\d", body.decode().replace(ID, ""))


def test_mail_says_one_line_and_nothing_can_be_slipped_into_its_head():
    with listening(MailBox, socketserver.ThreadingTCPServer) as server:
        port = server.server_address[1]
        notices = Notices([Mail("127.0.0.1", "abcdp@clinic.example", ("a@b.example",), port=port, tls=False)])
        notices.tell(ID, "clinic\r\nBcc: thief@example.org", "visible")
        notices.close()
    [message] = server.got
    read = email.message_from_bytes(message)
    assert sorted(read) == sorted(
        ["From", "To", "Subject", "Content-Type", "Content-Transfer-Encoding", "MIME-Version"]
    )
    assert "".join(read["Subject"].split()) == "".join(
        rf"request {ID} of dataset clinic\r\nBcc: thief@example.org changed to visible".split()
    )


def test_a_password_is_sent_over_no_open_connection():
    with listening(MailBox, socketserver.ThreadingTCPServer) as server:
        port = server.server_address[1]
        mail = Mail("127.0.0.1", "a@b.example", ("c@d.example",), port=port, user="me", password=SECRET, tls=False)
        with pytest.raises(smtplib.SMTPException, match="STARTTLS"):
            mail.send(Notice(ID, "clinic", "visible"))
    assert server.got == []
    assert SECRET not in repr(mail)


@pytest.mark.parametrize("state", ["draft", "charged", "stored", "noised", ""])
def test_steps_whose_time_is_private_are_told_to_nobody(state):
    with listening(Hook) as server:
        notices = Notices([hook_of(server)])
        notices.tell(ID, "clinic", state)
        notices.tell(ID, "clinic", "visible")
        notices.close()
    assert [json.loads(body)["state"] for _, _, body in server.got] == ["visible"]
    assert state not in TOLD


def test_what_fails_is_tried_again_and_then_logged_without_address_or_secret(caplog):
    pauses = []
    with listening(Hook) as server, caplog.at_level(logging.WARNING):
        server.answers[:] = [500, 302, 404]
        notices = Notices([hook_of(server, "/secret-path")], pauses.append)
        notices.tell(ID, "clinic", "refused")
        notices.tell(ID, "clinic", "expired")
        notices.close()
    assert len(server.got) == 4
    assert len(pauses) == 2
    assert caplog.messages == ["a notice to 127.0.0.1 failed (ConnectionError)"]
    assert SECRET not in repr(hook_of(server))


def test_a_receiver_that_hangs_blocks_nobody():
    release = threading.Event()

    class Stuck(WebHook):
        def send(self, notice: Notice) -> None:
            release.wait(10)

    notices = Notices([Stuck("http://127.0.0.1", SECRET)])
    start = time.monotonic()
    for _ in range(1500):  # more than wait at a time
        notices.tell(ID, "clinic", "approved")
    assert time.monotonic() - start < 2
    release.set()
    notices.close()


def test_a_watch_tells_each_change_once_and_nothing_old():
    states = {"a": ("clinic", "submitted"), "b": ("ward", "approved")}
    with listening(Hook) as server:
        watch = Watch(lambda: states, Notices([hook_of(server)]))
        watch.look()
        for state in ("approved", "approved", "charged", "stored", "visible"):
            states |= {"a": ("clinic", state)}
            watch.look()
        states |= {"c": ("clinic", "submitted")}
        watch.look()
        watch.stop()
    told = [json.loads(body) for _, _, body in server.got]
    assert [(one["request"], one["state"]) for one in told] == [("a", "approved"), ("a", "visible"), ("c", "submitted")]


def test_a_watch_goes_on_after_a_look_that_failed(caplog):
    looked, answers = threading.Event(), [{}, OSError("a private place"), {"a": ("clinic", "approved")}]

    def states():
        answer = answers.pop(0) if answers else looked.set() or {}
        if isinstance(answer, Exception):
            raise answer
        return answer

    with listening(Hook) as server, caplog.at_level(logging.WARNING):
        watch = Watch(states, Notices([hook_of(server)]))
        watch.start(0.01)
        assert looked.wait(10)
        watch.stop()
    assert [json.loads(body)["request"] for _, _, body in server.got] == ["a"]
    assert caplog.messages == ["requests could not be looked at for notices (OSError)"]


def test_receivers_are_those_of_the_settings(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text(f"{SECRET}\n")
    secret.chmod(0o600)
    hook = {"webhook": "https://chat.example.org/x", "webhook_secret": str(secret)}
    mail = {"smtp": "mail.example.org:587", "sender": "a@b.example", "to": ("c@d.example",)}
    password = {"smtp_user": "me", "smtp_password": str(secret)}
    assert receivers(Said()) == []
    assert receivers(Said(**hook, **mail, **password)) == [
        WebHook("https://chat.example.org/x", SECRET),
        Mail("mail.example.org", "a@b.example", ("c@d.example",), 587, "me", SECRET),
    ]
    wrong = [
        (hook | {"webhook": "chat.example.org"}, "notices.webhook:"),
        (hook | {"webhook_secret": ""}, "notices.webhook_secret:"),
        (mail | {"smtp": "mail.example.org"}, "notices.smtp:"),
        (mail | {"to": ()}, "notices.to"),
        (mail | {"smtp_user": "me"}, "notices.smtp_password:"),
    ]
    for said, word in wrong:
        with pytest.raises(SettingsError, match=word):
            receivers(Said(**said))
    secret.chmod(0o644)
    with pytest.raises(SettingsError, match="chmod 600"):
        receivers(Said(**hook))
