"""E-mails and what is attached to them; web pages saved as e-mails."""
