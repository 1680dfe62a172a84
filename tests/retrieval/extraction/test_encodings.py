"""Text files in the encodings of the world: stated, guessed, damaged; and their letters in one form."""

from __future__ import annotations

import pytest

from retrieval.errors import ExtractError
from retrieval.extraction.encodings import decode, looks_like_text
from tests.retrieval.extraction.reading import read, written

SENTENCES = {
    "German": (
        "Die Prüfung der Brücke kostet 450 Euro. Frau Größinger wohnt in der Königstraße 5.",
        "cp1252 mac_roman",
    ),
    "French": ("L'école est fermée à Noël. Le café coûte 3 francs, déjà payé par François, près du théâtre.", "cp1252"),
    "Spanish": ("La señora Ibáñez pagó en la cafetería del muelle; mañana volverá.", "cp1252"),
    "Swedish": ("Åsa bor på Ängsgatan i Malmö och arbetar på sjukhuset.", "cp1252 cp850"),
    "Polish": ("Małgorzata Wójcik wyjeżdża w czerwcu do Gdańska.", "cp1250 iso8859_2"),
    "Czech": ("Šárka Žďárská opravuje mapy a listiny. Vojtěch Říha vede čítárnu.", "cp1250"),
    "Russian": ("Гарантия на канат действует восемнадцать месяцев.", "cp1251 koi8_r cp866"),
    "Greek": ("Η εγγύηση ισχύει για δεκαοκτώ μήνες. Τηλέφωνο 210 555.", "cp1253"),
    "Hebrew": ("המרפאה פתוחה בימי ראשון. הטלפון הוא 03-555.", "cp1255"),
    "Japanese": ("坂本洋平が予備の鍵を持っています。給湯は九時から止まります。", "cp932 euc_jp"),
    "Chinese": ("公司定于十二月进行年度盘点,备用钥匙保管人是孙晓峰。", "gb18030"),
    "Korean": ("회사는 십이월에 연례 재고 조사를 실시합니다.", "cp949"),
}
EACH = [(text, encoding) for text, encodings in SENTENCES.values() for encoding in encodings.split()]


@pytest.mark.parametrize(("text", "encoding"), EACH, ids=[f"{text[:6]}-{encoding}" for text, encoding in EACH])
def test_an_encoding_that_nothing_states_is_guessed_and_said(text, encoding):
    found = decode(text.encode(encoding))
    assert found.text == text and "guessed" in found.notes[0]


@pytest.mark.parametrize(
    ("label", "encoding"),
    [
        ("iso-8859-1", "cp1252"),
        ("ISO-8859-1", "cp1252"),
        ("us-ascii", "cp1252"),
        ("windows-1250", "cp1250"),
        ("iso-8859-9", "cp1254"),
        ("gb2312", "gb18030"),
        ("shift_jis", "cp932"),
        ("euc-kr", "cp949"),
        ("macintosh", "mac_roman"),
        ("koi8-r", "koi8_r"),
    ],
)
def test_labels_mean_what_they_mean_on_the_web(label, encoding):
    text = {
        "cp1252": "9–17 €",
        "cp1250": "Žďár",
        "cp1254": "Işık",
        "gb18030": "朱镕莉",
        "cp932": "髙橋①",
        "cp949": "회사",
    }
    words = text.get(encoding, "Привет" if encoding == "koi8_r" else "café")
    for page in (
        f'<meta charset="{label}"><p>{words}</p>',
        f"<meta http-equiv=Content-Type content='text/html; charset={label}'><p>{words}</p>",
        f'<?xml version="1.0" encoding="{label}"?><p>{words}</p>',
    ):
        assert words in decode(page.encode(encoding)).text
    assert decode(words.encode(encoding), label) == (words, label.lower(), ())


@pytest.mark.parametrize(
    "text",
    ["Grüße – naïve", "naïve", "Käse für 5 €", "It’s “fine” – isn’t it?", "20 °C", "§ 5 Abs. 2", "Sœur Élise, 9 m²"],
)
def test_few_letters_of_western_europe_are_guessed_to_be_of_windows(text):
    found = decode(text.encode("cp1252"))
    assert found.text == text and found.encoding in ("cp1252", "windows-1252") and "guessed" in found.notes[0]


def test_what_is_utf_8_is_read_as_that_whatever_it_states():
    assert decode('<meta charset="iso-8859-1"><p>Größe</p>'.encode()).encoding == "utf-8"


def test_a_label_that_is_shifted_ascii_is_believed():
    assert decode("坂本".encode("iso2022_jp"), "iso-2022-jp").text == "坂本"


@pytest.mark.parametrize("label", ["no-such-encoding", "", "utf-8", "undefined"])
def test_a_label_that_helps_nothing_leaves_a_guess(label):
    text = SENTENCES["German"][0]
    assert decode(text.encode("cp1252"), label).text == text


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf_16_without_a_mark_is_known_by_its_zeros(tmp_path, encoding):
    data = "Keys.\nThe combination is 7264, says Zoë.".encode(encoding)
    assert looks_like_text(data)
    assert read(written(tmp_path, "made.txt", data)).text == "Keys.\nThe combination is 7264, says Zoë."


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
def test_a_byte_order_mark_decides(encoding):
    assert decode("Größe".encode(encoding)).text == "Größe"


def test_one_stray_byte_spoils_one_character():
    good = "Dörthe Größinger wohnt in Öhringen. "
    found = decode(good.encode() + b"It\x92s here. " + good.encode())
    assert found.text == f"{good}It’s here. {good}" and found.encoding == "utf-8" and "not UTF-8" in found.notes[0]


def test_runs_of_empty_bytes_in_a_log_are_left_out_and_said(tmp_path):
    document = read(written(tmp_path, "made.log", b"06:00 started\n" + bytes(400) + b"\n07:00 released\n"))
    assert document.text.split() == ["06:00", "started", "07:00", "released"] and "empty bytes" in document.notes[0]


@pytest.mark.parametrize(
    "data",
    [
        bytes(range(256)) * 8,
        b"PK\x03\x04\0\0\x01\x02" * 50,
        b"a\0\0\x01\x02b" * 100,
        b"%PDF-1.7\n" + bytes(300),
        b"\x7fELF" + bytes(500),
    ],
)
def test_binary_data_is_refused(data):
    assert not looks_like_text(data)
    with pytest.raises(ExtractError, match="binary"):
        decode(data)


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("Z\u030celimi\u0301r", "Želimír"),
        ("A\u030angstro\u0308m", "Ångström"),
        ("TM\u200b-350", "TM-350"),
        ("E\u2060119", "E119"),
        ("Heiz\u00adkosten", "Heizkosten"),
        ("a\ufeffb", "ab"),
        ("12\u00a0kg", "12 kg"),
        ("\uac00\u11a8", "각"),
    ],
)
def test_letters_are_composed_and_signs_that_nobody_sees_are_gone(tmp_path, source, text):
    assert read(written(tmp_path, "made.txt", source)).text == text
