"""Text in pictures: scanned pages and images of text.

`eng.traineddata` is the fast English model of https://github.com/tesseract-ocr/tessdata_fast (Apache-2.0).
"""
