-- Turnover by shop, and the batch that changed it last.
SELECT shop, sales, turnover, mean, dearest, txid
FROM report.sales
ORDER BY turnover DESC, shop;
