"""``tidelog alerts``: incidents of the detecting pipelines, and what people say of them."""
